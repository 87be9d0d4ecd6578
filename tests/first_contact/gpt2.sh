#!/usr/bin/env bash
# gpt2.sh BIN_DIR full|quick: tokens per second of training GPT-2 (124 million parameters, 1024 tokens) on one GPU, in
# 16 bits and in 32, eager and replayed from a graph. The batch is the largest of 16, 8, 4, 2, 1 that fits.
set -uo pipefail
bin=$1 size=$2
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
model=(--model gpt2 --vocabulary 50304) context=1024 steps=12 batches="16 8 4 2 1"
[[ $size == full ]] || {
    model=(--model gpt --layers 1 --heads 2 --embedding 32 --context 16) context=16 steps=3 batches="2 1"
}

number() { sed -n "s/^ *\"$1\": \([-0-9.e+]*\).*/\1/p" run/summary.json; }

measure() { # PRECISION [options]: prints one line; 1 if it fails for another reason than memory
    local batch
    for batch in $batches; do
        rm -rf run
        if "$bin/train_single" --device cuda "${model[@]}" --data text --optimizer adamw --lr 6e-4 --no-eval --steps $steps \
            --log-every 1 --global-batch "$batch" --out run "${@:2}" >out 2>err; then
            awk -v what="$1" -v ms="$(number step_ms_p50)" -v tokens=$((batch * context)) -v batch="$batch" \
                -v parameters="$(number parameters)" -v bytes="$(number peak_bytes_device0)" 'BEGIN {
                printf "%s, batch %d: %.1f ms a step, %.0f tokens/s, %.1f TFLOP/s (6 x parameters x tokens), %.1f GB\n",
                    what, batch, ms, tokens / ms * 1e3, 6e-9 * parameters * tokens / ms, bytes / 1e9 }'
            return 0
        fi
        grep -qiE 'out of memory|no memory|MemoryAllocation' err || {
            echo "FAILED: $*: $(grep -m 1 error: err || tail -n 1 err)"
            return 1
        }
    done
    echo "$*: not even a batch of 1 fits"
}

failures=0 half=bf16
"$bin/train_single" --device cuda --model mlp --steps 1 --no-eval --amp bf16 >/dev/null 2>&1 || half=fp16
measure fp32 || failures=$((failures + 1))
[[ $half == fp16 ]] || measure tf32 --tf32 || failures=$((failures + 1))
measure "$half" --amp $half || failures=$((failures + 1))
# With fp16 a step cannot be captured: the host decides whether the optimizer steps.
graph=fp32 amp=()
[[ $half == fp16 ]] || graph=bf16 amp=(--amp bf16)
measure "$graph from a graph" "${amp[@]}" --cuda-graph || failures=$((failures + 1))
[[ $failures == 0 ]]
