#!/bin/sh
# bits.sh BIN_DIR: the line at the start of a run that says whether DataParallel and
# DistributedDataParallel promise equal bits for it. Every promise is held to: the two checkpoints are
# compared. What is not promised says what would help.
. "$(dirname "$0")/checks.sh"

says() { # 'the line' FILE
    checks=$((checks + 1))
    grep -qxF -- "$1" "$2" || fail "no line \"$1\": $(cat "$2")"
}

# promise N 'what to add to the ranks' OPTION...: DP says what to add, and with it DDP has its bits.
promise() {
    n=$1 more=$2
    shift 2
    run "dp $n $*" "$bin/train_dp" --devices "$n" --steps 7 --no-eval --save dp "$@"
    says "bits: equal to DistributedDataParallel's on $n ranks with $more" err.txt
    # shellcheck disable=SC2086 # options are words
    run "ddp $n $*" "$bin/ddprun" --nproc-per-node "$n" "$bin/train_ddp" --steps 7 --no-eval --save ddp \
        $more "$@"
    says "[0]: bits: equal to DataParallel's on $n devices" err.txt
    same dp ddp
}

promise 2 "--sampler blocked"
promise 4 "--sampler blocked" --model convnet --optimizer adamw --global-batch 40 --data synthetic:1x12x12:5@280
promise 3 "--sampler blocked --normalize global"
promise 2 "--sampler blocked --normalize global" --global-batch 57
promise 2 "--sampler blocked --normalize global" --model segnet --data shapes:8x8@21 --global-batch 8

# not 'the reason' N OPTION...: train_ddp promises nothing.
not() {
    reason=$1 n=$2
    shift 2
    run "ddp $n $*" "$bin/ddprun" --nproc-per-node "$n" "$bin/train_ddp" --steps 3 --no-eval "$@"
    says "[0]: bits: not promised against DataParallel ($reason)" err.txt
}

not "interleaved sampler: --sampler blocked" 2
not "interleaved sampler: --sampler blocked; a mean of means: --normalize global" 3
not "a mean of means: --normalize global" 3 --sampler blocked
not "--comm-hook changes gradients" 2 --sampler blocked --comm-hook fp16
not "DataParallel has no SyncBatchNorm" 2 --sampler blocked --sync-batch-norm --model convnet

# One device has nothing to be compared with.
run single "$bin/train_single" --steps 2 --no-eval
checks=$((checks + 1))
! grep -q 'bits:' err.txt || fail "one device speaks of bits"

tally bits
