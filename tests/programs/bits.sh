#!/bin/sh
# bits.sh BIN_DIR: the line at the start of a run that says whether DataParallel and DistributedDataParallel promise
# equal bits. Each promise is checked on the checkpoints, with the optimizer state. Without a promise, the line has the
# reasons and the options that would help. (random_bits.py draws random cases.)
. "$(dirname "$0")/checks.sh"

says() { # 'the line' FILE
    checks=$((checks + 1))
    grep -qxF -- "$1" "$2" || fail "no line \"$1\": $(cat "$2")"
}

# promise N 'OPTIONS FOR THE RANKS' OPTION...: train_dp names these options, and train_ddp with them has equal bits.
promise() {
    n=$1 more=$2 unless=
    shift 2
    case $more in *global*) ;; *) unless=", unless a gradient leaves float32's normal range" ;; esac
    run "dp $n $*" "$bin/train_dp" --devices "$n" --steps 7 --no-eval --save dp "$@"
    says "bits: weights, buffers and optimizer state equal DistributedDataParallel's on $n ranks with $more$unless" err.txt
    # shellcheck disable=SC2086 # options are words
    run "ddp $n $*" "$bin/ddprun" --nproc-per-node "$n" "$bin/train_ddp" --steps 7 --no-eval --save ddp \
        $more "$@"
    says "[0]: bits: weights, buffers and optimizer state equal DataParallel's on $n devices$unless" err.txt
    same dp ddp
}

promise 2 "--sampler blocked"
promise 4 "--sampler blocked" --model convnet --optimizer adamw --global-batch 40 --data synthetic:1x12x12:5@280
promise 3 "--sampler blocked --normalize global"
promise 2 "--sampler blocked --normalize global" --global-batch 57
promise 2 "--sampler blocked --normalize global" --model segnet --data shapes:8x8@21 --global-batch 8
# Four epochs in which fp16 overflows: both programs lower the dynamic scale in the same steps.
promise 2 "--sampler blocked --normalize global" --amp fp16 --steps 100
promise 4 "--sampler blocked --normalize global" --amp fp16 --model convnet --global-batch 8 --lr 1 --steps 24
# Gradients that are subnormal in float32, or zero.
promise 4 "--sampler blocked --normalize global" --loss bce --pos-weight 1e-42 --global-batch 5 \
    --data synthetic:1x4x4:2@40 --hidden 5 --weight-decay 0
promise 2 "--sampler blocked" --amp bf16

# not 'REASON' N OPTION...: train_ddp makes no promise, for this reason.
not() {
    reason=$1 n=$2
    shift 2
    run "ddp $n $*" "$bin/ddprun" --nproc-per-node "$n" "$bin/train_ddp" --steps 3 --no-eval "$@"
    says "[0]: bits: not promised against DataParallel ($reason)" err.txt
}

turns="ranks take rows in turns, DataParallel's devices take blocks: --sampler blocked"
rounds="dividing by W rounds: --normalize global"
fp16="gradients W times as large overflow or underflow fp16 in other steps: --normalize global"
mined="each rank mines the pixels of its own rows"
segnet="--sampler blocked --normalize global --model segnet --data shapes:8x8@20 --global-batch 8"
not "$turns" 2
not "$turns; $rounds" 3
not "$rounds" 3 --sampler blocked
not "$fp16" 2 --sampler blocked --amp fp16
not "$rounds; $fp16" 3 --sampler blocked --amp fp16
# shellcheck disable=SC2086 # options are words
not "$mined" 4 $segnet --ohem-probability 0.7
# shellcheck disable=SC2086
not "$mined" 2 $segnet --ohem-threshold 0.7
not "the communication hook changes gradients" 2 --sampler blocked --comm-hook fp16
not "DataParallel has no SyncBatchNorm" 2 --sampler blocked --sync-batch-norm --model convnet
not "each rank adds up its parts before ranks are added up" 2 --sampler blocked --accumulate-steps 2

# DataParallel has obstacles of its own, which no option of train_ddp removes.
run "dp, mining" "$bin/train_dp" --devices 2 --steps 3 --no-eval --model segnet --data shapes:8x8@20 \
    --global-batch 8 --ohem-probability 0.7
says "bits: not promised against DistributedDataParallel ($mined)" err.txt

# No line for one device, which has no counterpart, or for a run without training.
silent() {
    run "$*" "$@"
    checks=$((checks + 1))
    ! grep -q 'bits:' err.txt || fail "a line about bits: $*"
}
silent "$bin/train_single" --steps 2 --no-eval
silent "$bin/train_dp" --devices 2 --dry-run
silent "$bin/train_dp" --devices 2 --evaluate dp --model mlp

tally bits
