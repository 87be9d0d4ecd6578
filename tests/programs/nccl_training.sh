#!/usr/bin/env bash
# nccl_training.sh BIN: train_ddp over NCCL with two and four ranks agrees with train_ddp on the CPU within rounding,
# plain and with the features that change gradients or statistics. Ranks share GPUs if there are too few (gpus.sh).
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DDPC_EMULATED_GPUS=2 # ignored on real GPUs

skipped=0
"$bin/train_single" --device cuda --model mlp --steps 1 >"$work/out" 2>&1 || skipped=$?
if [[ $skipped == 77 ]]; then
    cat "$work/out"
    exit 77
fi

. "$(dirname "$0")/gpus.sh"

# run RANKS DEVICE FILE [options]
run() {
    local launch device=$2 file=$3
    ranks_on_gpus "$1"
    shift 3
    "${launch[@]}" "$bin/train_ddp" --device "$device" \
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
    grep -q "\"fake_hosts\": $( ((gpus < ranks)) && echo true || echo false)" "$work/cuda/summary.json"
}

agree 1e-4 2 --model mlp --steps 4
agree 1e-4 4 --model mlp --steps 4
agree 1e-4 2 --model convnet --steps 2 --sync-batch-norm
agree 1e-3 2 --model mlp --steps 3 --comm-hook fp16
agree 1e-2 2 --model mlp --steps 3 --comm-hook bf16
agree 1e-3 2 --model mlp --steps 4 --comm-hook powersgd --powersgd-start 2
agree 1e-4 2 --model mlp --steps 3 --find-unused-parameters --normalize global
has_bf16 && agree 1e-2 2 --model mlp --steps 3 --amp bf16
agree 1e-3 2 --model mlp --steps 3 --amp fp16
agree 1e-4 2 --model mlp --steps 4 --clip-grad-norm 0.5 --accumulate-steps 2
agree 1e-4 2 --model mlp --steps 4 --optimizer adamw --zero-optimizer
agree 1e-3 2 --model gpt --steps 2 --global-batch 4

# Two ranks with SyncBatchNorm compute the same as one GPU with the whole batch, also in 16 bits.
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
has_bf16 && like_one 1e-2 --model convnet --steps 2 --amp bf16
like_one 2e-3 --model convnet --steps 2 --amp fp16

# srun --gpus-per-task=1: each task sees one GPU as cuda:0; two tasks with the same GPU are refused.
tasks() { # CARD CARD: the GPUs of task 0 and task 1
    local rank task=() port=$((20000 + RANDOM % 10000))
    for rank in 0 1; do
        env -u SLURM_JOB_ID -u RANK -u WORLD_SIZE SLURM_PROCID=$rank SLURM_NTASKS=2 SLURM_LOCALID=$rank \
            SLURM_GPUS_PER_TASK=1 CUDA_VISIBLE_DEVICES="$1" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            "$bin/train_ddp" --model mlp --steps 2 --no-eval --timeout-s 60 --save "$work/task" --out "$work/tasks" \
            >"$work/out$rank" 2>&1 &
        task+=($!)
        shift
    done
    status=0
    for rank in 0 1; do wait "${task[rank]}" || status=$?; done
}
if ((gpus >= 2)); then
    tasks 0 1
    if [[ $status != 0 ]] || ! grep -q '"backend": "nccl"' "$work/tasks/summary.json"; then
        echo "tasks of srun with a GPU each: status $status: $(cat "$work/out0" "$work/out1")"
        exit 1
    fi
    tasks 1 1
    if [[ $status != 2 ]] || ! grep -q 'error: ranks 0 and 1 share a GPU' "$work/out0"; then
        echo "tasks of srun with the same GPU: status $status: $(cat "$work/out0" "$work/out1")"
        exit 1
    fi
fi
