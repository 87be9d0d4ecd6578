#!/usr/bin/env bash
# nccl_training.sh BIN: train_ddp over NCCL with two and four ranks agrees with train_ddp on the CPU, up
# to rounding, plain and with the features that touch gradients or statistics. Ranks share GPUs
# (ddprun --fake-hosts) where there are too few.
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DDPC_EMULATED_GPUS=2 # of the emulator; a real machine has what it has

skipped=0
"$bin/train_single" --device cuda --model mlp --steps 1 >"$work/out" 2>&1 || skipped=$?
if [[ $skipped == 77 ]]; then
    cat "$work/out"
    exit 77
fi

# run RANKS DEVICE FILE [options]
run() {
    local ranks=$1 device=$2 file=$3
    shift 3
    "$bin/ddprun" --fake-hosts --nproc-per-node "$ranks" "$bin/train_ddp" --device "$device" \
        --global-batch 32 --save "$file" --timeout-s 60 --out "$work/$device" "$@" \
        >"$work/out" 2>&1 || {
        cat "$work/out"
        exit 1
    }
}

# agree TOLERANCE RANKS [options]
agree() {
    local tolerance=$1 ranks=$2
    shift 2
    run "$ranks" cpu "$work/cpu.st" "$@"
    run "$ranks" cuda "$work/cuda.st" "$@"
    "$bin/compare_tensors" --tol "$tolerance" "$work/cuda.st" "$work/cpu.st" >"$work/out" || {
        echo "$ranks ranks, $*:"
        cat "$work/out"
        exit 1
    }
    grep -q '"backend": "nccl"' "$work/cuda/summary.json"
    grep -q '"fake_hosts": true' "$work/cuda/summary.json"
}

agree 1e-4 2 --model mlp --steps 4
agree 1e-4 4 --model mlp --steps 4
agree 1e-4 2 --model convnet --steps 2 --sync-batch-norm
agree 1e-3 2 --model mlp --steps 3 --comm-hook fp16
agree 1e-2 2 --model mlp --steps 3 --comm-hook bf16
agree 1e-3 2 --model mlp --steps 4 --comm-hook powersgd --powersgd-start 2
agree 1e-4 2 --model mlp --steps 3 --find-unused-parameters --normalize global
agree 1e-2 2 --model mlp --steps 3 --amp bf16
agree 1e-3 2 --model mlp --steps 3 --amp fp16
agree 1e-4 2 --model mlp --steps 4 --clip-grad-norm 0.5 --accumulate-steps 2
agree 1e-4 2 --model mlp --steps 4 --optimizer adamw --zero-optimizer
agree 1e-3 2 --model gpt --steps 2 --global-batch 4

# Two ranks whose batch norm sees the whole batch compute what one GPU with the whole batch does, in 16 bits, too.
like_one() { # TOLERANCE [options]
    local tolerance=$1
    shift
    "$bin/train_single" --device cuda --global-batch 32 --save "$work/one.st" "$@" >"$work/out" 2>&1 || {
        cat "$work/out"
        exit 1
    }
    run 2 cuda "$work/two.st" --sampler blocked --normalize global --sync-batch-norm "$@"
    "$bin/compare_tensors" --tol "$tolerance" "$work/two.st" "$work/one.st" >"$work/out" || {
        echo "two ranks with SyncBatchNorm beside one GPU, $*:"
        cat "$work/out"
        exit 1
    }
}
like_one 1e-4 --model convnet --steps 2
like_one 1e-2 --model convnet --steps 2 --amp bf16
like_one 2e-3 --model convnet --steps 2 --amp fp16
