#!/usr/bin/env bash
# nccl_graphs.sh BIN: two ranks that replay their steps from a graph (--cuda-graph) train as without it, bit
# for bit: with hooks and features that may be recorded, and where the ranks' shares are uneven. What may
# not be recorded is refused by name. Ranks share GPUs (ddprun --fake-hosts) where there are too few.
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DDPC_EMULATED_GPUS=2 # of the emulator; a real machine has what it has
failures=0

skipped=0
"$bin/train_single" --device cuda --model mlp --steps 1 >"$work/out" 2>&1 || skipped=$?
if [[ $skipped == 77 ]]; then
    cat "$work/out"
    exit 77
fi

emulated=$(grep -c 'emulated GPU' "$work/out" || true)

fail() {
    echo "FAILED  $*"
    cat "$work/out"
    failures=$((failures + 1))
}

two() { # options
    "$bin/ddprun" --fake-hosts --nproc-per-node 2 "$bin/train_ddp" --device cuda --no-eval \
        --timeout-s 20 "$@" >"$work/out" 2>&1
}

# same [options]: with and without --cuda-graph
same() {
    two --save "$work/eager" "$@" || fail "eager: $*"
    two --save "$work/graph" --cuda-graph "$@" || fail "--cuda-graph: $*"
    "$bin/compare_tensors" --bitwise "$work/graph" "$work/eager" >"$work/out" || fail "other bits: $*"
}

# refuse WHAT [options]: with --cuda-graph
refuse() {
    local what=$1 status=0
    shift
    two --cuda-graph "$@" || status=$?
    [[ $status == 2 ]] && grep -q -e "error: --cuda-graph: .*$what" "$work/out" ||
        fail "status $status, not refused: $*"
}

# failing_rank: rank 0's communicator fails in a replayed step, and the checkpoint that is there
# afterwards is that of a step that went well.
failing_rank() {
    local status=0 step
    # shellcheck disable=SC2016 # the ranks' shells know $RANK
    "$bin/ddprun" --fake-hosts --nproc-per-node 2 sh -c \
        '[ "$RANK" = 1 ] || export DDPC_EMULATED_NCCL_REPLAY_ERROR_AT=9
         exec "$0" "$@"' "$bin/train_ddp" --device cuda --no-eval --timeout-s 20 --cuda-graph \
        --schedule constant --steps 400 --log-every 1000 --save-every 1 --save "$work/lost" \
        >"$work/out" 2>&1 || status=$?
    [[ $status == 1 ]] || fail "a communicator that fails in a replay: status $status"
    grep -q 'error: .*remote process exited' "$work/out" || fail "who has failed is not said"
    ! grep -q 'ncclCommAbort did not return' "$work/out" || fail "graphs were not closed"
    step=$(basename "$work"/lost.*.optimizer | cut -d . -f 2)
    two --schedule constant --steps "$step" --save "$work/eager" || fail "$step steps"
    "$bin/compare_tensors" --bitwise "$work/lost" "$work/eager" >"$work/out" ||
        fail "the checkpoint of step $step is none"
}

# The last batch of an epoch has 18 samples: rank 1 has nine of them, as of the others' 19, rank 0 has one
# less.
same --data synthetic:1x8x8:10@132 --model mlp --global-batch 19 --epochs 2 --sampler blocked --normalize global

same --model mlp --steps 9 --comm-hook fp16 --no-gradient-as-bucket-view --static-graph
[[ $emulated == 0 ]] || failing_rank # no other NCCL fails when it is told to
refuse 'powerSGD' --comm-hook powersgd --steps 2000
refuse '--powersgd-start' --comm-hook powersgd --powersgd-start 2
refuse '--sync-batch-norm' --model convnet --sync-batch-norm
refuse '--find-unused-parameters' --find-unused-parameters

# Two communicators on a device need queues of their own.
status=0
CUDA_DEVICE_MAX_CONNECTIONS=1 two --steps 2 --model convnet --sync-batch-norm || status=$?
[[ $status == 2 ]] && grep -q 'error: CUDA_DEVICE_MAX_CONNECTIONS=1: ' "$work/out" || fail "one queue: status $status"
CUDA_DEVICE_MAX_CONNECTIONS=1 two --steps 2 --model mlp || fail "one queue, one communicator"

echo "nccl_graphs: $failures failures"
[[ $failures == 0 ]]
