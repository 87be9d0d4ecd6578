#!/usr/bin/env bash
# graph.sh BIN_DIR full|quick [OPTION of ddprun...]: training with --cuda-graph ends with the same bits as without: one
# device and two ranks, in 32 and in 16 bits. A failing case does not prevent the others. (The sum of two ranks is the
# same in any order, so NVLS may be used.)
set -uo pipefail
bin=$1 size=$2
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
runs=0 failures=0
two=("$bin/ddprun" "${@:3}" --nproc-per-node 2 "$bin/train_ddp")

same() { # COMMAND...
    runs=$((runs + 1))
    rm -f eager* graph*
    "$@" --device cuda --no-eval --steps 12 --save eager &&
        "$@" --device cuda --no-eval --steps 12 --save graph --cuda-graph &&
        "$bin/compare_tensors" --bitwise graph eager && return
    echo "FAILED: other bits, or none: $*"
    failures=$((failures + 1))
}

bf16=1 # 0 below capability 8.0
"$bin/train_single" --device cuda --model mlp --steps 1 --no-eval --amp bf16 >/dev/null 2>&1 || bf16=''
same "${two[@]}" --model mlp
if [[ $size == full ]]; then
    for model in mlp convnet resnet20; do
        same "$bin/train_single" --model "$model"
        [[ -z $bf16 ]] || same "$bin/train_single" --model "$model" --amp bf16
    done
    [[ -z $bf16 ]] || same "${two[@]}" --model convnet --comm-hook bf16
fi
[[ $failures == 0 ]] || { echo "FAILED: $failures of $runs trainings" && exit 1; }
echo "$runs trainings, each with the same bits from a graph"
