#!/usr/bin/env bash
# smoke.sh BIN_DIR full|quick: a few steps of every model in every precision on one GPU. Losses must equal the CPU's
# within the precision's rounding. Precisions that a card lacks (bfloat16 and TF32 below 8.0) must be refused by name.
set -uo pipefail
bin=$1 size=$2
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
models=(mlp convnet resnet20 segnet gpt-small)
common=(--steps 5 --global-batch 32 --lr 0.01 --no-eval --log-every 1)
[[ $size == full ]] || common=(--steps 2 --global-batch 4 --lr 0.01 --no-eval --log-every 1)
runs=0 failures=0 refused=0

options_of() { # MODEL
    case $1 in
    segnet) echo "--data shapes" ;;
    gpt-small) [[ $size == full ]] && echo "--data text" || echo "--data text --layers 1 --embedding 32 --context 16" ;;
    esac
}

train() { # DEVICE MODEL [options]: sets first and last, the losses of these steps
    # shellcheck disable=SC2046 # the options are words
    "$bin/train_single" --device "$1" --model "$2" "${common[@]}" $(options_of "$2") "${@:3}" >out 2>err
    status=$?
    sed -n 's/.*loss=\([^ ]*\).*/\1/p' out >losses
    first=$(head -n 1 losses) last=$(tail -n 1 losses)
}

near() { # LOSS EXPECTED TOLERANCE: relative; false for NaN
    awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a + 0 > 0 && d <= most * b) }'
}

# row MODEL PRECISION TOLERANCE FIRST LAST [options]. In 16 bits the last loss must only be a number: fp16 skips steps
# whose gradients overflow.
row() {
    local model=$1 precision=$2 tolerance=$3 expected_first=$4 expected_last=$5
    shift 5
    runs=$((runs + 1))
    train cuda "$model" "$@"
    [[ $precision != *16 ]] || expected_last=$last
    if [[ $status == 2 ]] && grep -q 'and it needs 8.0' err; then
        refused=$((refused + 1))
        printf '%-10s %-5s refused: %s\n' "$model" "$precision" "$(grep -m 1 error: err)"
    elif [[ $status == 0 ]] && near "$first" "$expected_first" "$tolerance" && near "$last" "$expected_last" "$tolerance"; then
        printf '%-10s %-5s loss %s, on the CPU %s\n' "$model" "$precision" "$first" "$expected_first"
    else
        failures=$((failures + 1))
        printf 'FAILED: %s %s: status %s, losses %s to %s, on the CPU %s to %s\n' "$model" "$precision" "$status" "$first" \
            "$last" "$expected_first" "$expected_last"
        tail -n 3 err
    fi
}

for model in "${models[@]}"; do
    train cpu "$model"
    cpu_first=$first cpu_last=$last
    row "$model" fp32 1e-3 "$cpu_first" "$cpu_last"
    row "$model" tf32 1e-2 "$cpu_first" "$cpu_last" --tf32
    row "$model" bf16 5e-2 "$cpu_first" "$cpu_last" --amp bf16
    row "$model" fp16 5e-2 "$cpu_first" "$cpu_last" --amp fp16
done
[[ $failures == 0 ]] || { echo "FAILED: $failures of $runs trainings" && exit 1; }
echo "$runs trainings: $((runs - refused)) with the CPU's loss, $refused refused by name"
