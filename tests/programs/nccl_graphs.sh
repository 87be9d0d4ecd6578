#!/usr/bin/env bash
# nccl_graphs.sh BIN: two ranks that replay steps from a graph (--cuda-graph) train with the same bits as without: with
# recordable hooks and features, and with uneven shares. Features that cannot be recorded are refused by name. Ranks
# share GPUs if there are too few (gpus.sh).
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DDPC_EMULATED_GPUS=2 # ignored on real GPUs
failures=0

skipped=0
"$bin/train_single" --device cuda --model mlp --steps 1 >"$work/out" 2>&1 || skipped=$?
if [[ $skipped == 77 ]]; then
    cat "$work/out"
    exit 77
fi

emulated=$(grep -c 'emulated GPU' "$work/out" || true)
. "$(dirname "$0")/gpus.sh"
ranks_on_gpus 2

fail() {
    echo "FAILED  $*"
    cat "$work/out"
    failures=$((failures + 1))
}

two() { # options
    "${launch[@]}" "$bin/train_ddp" --device cuda --no-eval --timeout-s 20 "$@" >"$work/out" 2>&1
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

# faulty VARIABLE=K OPTION...: the K-th collective of replayed steps fails on rank 0; sets status.
faulty() {
    local fault=$1
    shift
    status=0
    # shellcheck disable=SC2016 # the ranks' shells know $RANK
    "${launch[@]}" sh -c '[ "$RANK" = 1 ] || export "$1"; shift; exec "$@"' sh \
        "DDPC_EMULATED_NCCL_REPLAY_$fault" "$bin/train_ddp" --device cuda --no-eval --cuda-graph "$@" \
        >"$work/out" 2>&1 || status=$?
}

# failing_rank: rank 0's communicator fails in a replayed step; the remaining checkpoint is that of a successful step.
failing_rank() {
    local step
    faulty ERROR_AT=9 --timeout-s 20 --schedule constant --steps 400 --log-every 1000 --save-every 1 --save "$work/lost"
    [[ $status == 1 ]] || fail "a communicator that fails in a replay: status $status"
    grep -q 'error: .*remote process exited' "$work/out" || fail "who has failed is not said"
    ! grep -q 'ncclCommAbort did not return' "$work/out" || fail "graphs were not closed"
    step=$(basename "$work"/lost.*.optimizer | cut -d . -f 2)
    two --schedule constant --steps "$step" --save "$work/eager" || fail "$step steps"
    "$bin/compare_tensors" --bitwise "$work/lost" "$work/eager" >"$work/out" ||
        fail "the checkpoint of step $step is none"
}

# failing_dump: gradients dumped at that time must all be reduced ones.
failing_dump() {
    local file dump=(--schedule constant --dump-step "4,5,6,7,8,9,10,11" --steps 12)
    faulty ERROR_AT=4 --timeout-s 20 "${dump[@]}" --dump-grads "$work/lost-{step}"
    [[ $status == 1 && -e $work/lost-5 && ! -e $work/lost-11 ]] || fail "gradients and a failure: status $status"
    two "${dump[@]}" --dump-grads "$work/eager-{step}" || fail "--dump-grads"
    for file in "$work"/lost-*; do
        "$bin/compare_tensors" --bitwise "$file" "$work/eager-${file##*-}" >"$work/out" ||
            fail "gradients of step ${file##*-} were not added up"
    done
}

# hanging_rank: rank 0's communicator hangs in a replayed step; no rank waits for half an hour.
hanging_rank() {
    faulty HANG_AT=9 --timeout-s 10 --steps 400
    [[ $status == 1 ]] && grep -q 'error: cuda:[01] did not finish its work within 10 s' "$work/out" ||
        fail "a communicator that hangs in a replay: status $status"
}

# The last batch of an epoch has 18 rows instead of 19: rank 1 has nine rows, as before, rank 0 has one less.
same --data synthetic:1x8x8:10@132 --model mlp --global-batch 19 --epochs 2 --sampler blocked --normalize global

same --model mlp --steps 9 --comm-hook fp16 --no-gradient-as-bucket-view --static-graph
if [[ $emulated != 0 ]]; then # a real NCCL cannot be made to fail
    failing_rank
    failing_dump
    hanging_rank
fi
refuse 'powerSGD' --comm-hook powersgd --steps 2000
refuse '--powersgd-start' --comm-hook powersgd --powersgd-start 2
refuse '--sync-batch-norm' --model convnet --sync-batch-norm
refuse '--find-unused-parameters' --find-unused-parameters

# Two communicators on a device need hardware queues of their own: CUDA is asked for the maximum.
DDPC_EMULATOR_COUNT=1 two --steps 2 --model mlp || fail "queues are asked for"
[[ $emulated == 0 ]] || grep -q 'cuda_emulator: *32 queues' "$work/out" || fail "queues are not asked for"
status=0
CUDA_DEVICE_MAX_CONNECTIONS=1 two --steps 2 --model convnet --sync-batch-norm || status=$?
[[ $status == 2 ]] && grep -q 'error: CUDA_DEVICE_MAX_CONNECTIONS=1: ' "$work/out" || fail "one queue: status $status"
CUDA_DEVICE_MAX_CONNECTIONS=1 two --steps 2 --model mlp || fail "one queue, one communicator"

echo "nccl_graphs: $failures failures"
[[ $failures == 0 ]]
