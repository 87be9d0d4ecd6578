#!/usr/bin/env bash
# launches.sh [BUILD_DIR [OPTION...]]: the GPU work of one training step, counted by the emulator
# (no GPU is needed, and nothing is timed): launches of kernels and library calls, copies, bytes copied,
# and the training's peak memory.
#
# A step is the difference between a run of six steps and one of five. Without OPTIONs: mlp 1024-1024, gpt
# and resnet20, as a table; with OPTIONs of train_single: that training, with each kernel's name.
# BUILD_DIR (default: build-emulator) was built with `cmake --preset emulator`. The status is 77 without it.
set -euo pipefail
case ${1:-} in
--help | -h) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 0 ;;
-*) echo "error: ${1:0:80}: BUILD_DIR comes first; tests/emulator/launches.sh --help shows how" >&2 && exit 2 ;;
esac
build=${1:-build-emulator}
[[ $# == 0 ]] || shift
program=$build/bin/train_single
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# count FILE STEPS OPTION...: prints "times<tab>what<tab>bytes" of a complete run.
count() {
    local file=$1 steps=$2
    shift 2
    DDPC_EMULATED_GPUS=1 DDPC_EMULATOR_COUNT=1 "$program" --device cuda --no-eval --steps "$steps" \
        --log-every 1000 "$@" 2>"$file.err" >"$file.out" || { cat "$file.err" >&2 && return 1; }
    sed -nE 's/^cuda_emulator: +([0-9]+) x (.*)$/\1\t\2/p' "$file.err" |
        sed -E 's/, ([0-9]+) bytes$/\t\1/' >"$file"
}

# a_step OPTION...: prints the difference of a sixth step in the same columns.
a_step() {
    count "$work/five" 5 "$@" && count "$work/six" 6 "$@" &&
        awk -F '\t' 'FNR == NR { times[$2] = $1; bytes[$2] = $3; next }
                     $1 > times[$2] { print $1 - times[$2] "\t" $2 "\t" $3 - bytes[$2] }' \
            "$work/five" "$work/six"
}

held() {
    DDPC_EMULATED_GPUS=1 "$program" --device cuda --no-eval --steps 2 --out "$work/held" "$@" >"$work/held.out" 2>&1 &&
        sed -nE 's/.*"peak_bytes_device0": ([0-9]+).*/\1/p' "$work/held/summary.json"
}

# row NAME OPTION...: prints a row of the table. Launches are kernels and library calls, without copies and host-side
# calls.
row() {
    local name=$1
    shift
    a_step "$@" >"$work/step"
    awk -F '\t' -v name="$name" -v held="$(held "$@")" '
        /cudaMemcpy/ { copies += $1; bytes += $3; next }
        /cudaEvent|cudaStream|the host|cudaGraph|cudaHost/ { next }
        { launches += $1 }
        END { printf "| %s | %d | %d | %d | %s |\n", name, launches, copies, bytes, held }' "$work/step"
}

[[ -x $program ]] || { echo "skipped: $program is missing (cmake --preset emulator)" && exit 77; }
"$program" --device cuda --steps 1 --no-eval >"$work/first" 2>&1 ||
    { echo "skipped: $build has no emulated GPU" && exit 77; }
if [[ $# -gt 0 ]]; then
    a_step "$@"
    exit
fi
mlp=(--model mlp --hidden 1024,1024 --global-batch 64)
resnet=(--model resnet20 --data synthetic:3x32x32:10 --global-batch 2)
gpt=(--model gpt --global-batch 2)
echo "| a step of | launches | copies | bytes copied | bytes held |"
echo "|---|---:|---:|---:|---:|"
row "mlp 1024-1024" "${mlp[@]}"
row "mlp 1024-1024, --amp bf16" "${mlp[@]}" --amp bf16
if [[ $("$program" --help) == *gpt* ]]; then # missing in older versions
    row "gpt" "${gpt[@]}"
    row "gpt, --amp bf16" "${gpt[@]}" --amp bf16
fi
row "resnet20" "${resnet[@]}"
row "resnet20, --amp bf16" "${resnet[@]}" --amp bf16
