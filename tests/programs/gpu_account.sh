#!/bin/sh
# gpu_account.sh BIN_DIR: the estimate of a step on a GPU reproduces published times of other programs, has as many
# launches as a real step (counted by the emulator, in its build), and depends on each of its constants.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
command -v python3 >/dev/null || { echo "skipped: there is no python3" && exit 77; }
account=$root/bench/gpu_account.py

# within FILE PERCENT: the estimate for the list agrees with the list's time.
within() {
    run "$1" "$account" --list "$root/bench/account/$1.csv"
    known=$(sed -n 's/^# expected: \([0-9]*\) ms on h100.*/\1/p' "$root/bench/account/$1.csv")
    step=$(sed -n 's/^step_ms=\([0-9.]*\) .*/\1/p' out.txt)
    awk -v a="$step" -v b="$known" -v p="$2" 'BEGIN { exit !(b > 0 && a > b * (1 - p / 100) && a < b * (1 + p / 100)) }' ||
        fail "$1: $step ms, not within $2 % of $known"
}
within llm_c 25
within pytorch_eager 25

for card in h200 h100 a100 rtx3060 t4; do
    run "$card" "$account" "$bin" --card "$card"
    sed -n 's/^step_ms=\([0-9.]*\) .*/\1/p' out.txt >>steps
    if [ "$card" = h100 ]; then cp out.txt h100; fi
done
checks=$((checks + 1))
sort -n steps | cmp -s - steps || fail "the slower card is not slower: $(tr '\n' ' ' <steps)"
# The page quotes this estimate.
checks=$((checks + 1))
while read -r row; do
    grep -qF "$row" "$root/bench/results/gpu_account.md" || fail "bench/results/gpu_account.md does not say: $row"
done <h100

# The launches of a small model's step, counted by the emulator.
emulator=$bin/../lib/libcuda_emulator.so
if [ -e "$emulator" ] && [ -x "$bin/train_single" ]; then
    sizes="--layers 3 --heads 2 --embedding 32 --context 16"
    # shellcheck disable=SC2086 # the sizes are several words
    {
        counted=$(DDPC_EMULATED_CAPABILITY=90 "$root/tests/emulator/launches.sh" "$bin/.." --model gpt --amp bf16 $sizes --global-batch 2 --optimizer adamw |
            awk -F '\t' '!/cudaMemcpy|cudaEvent|cudaStream|the host|cudaGraph|cudaHost/ { sum += $1 } END { print sum }')
        listed=$("$bin/bench_operations" $sizes --vocabulary 76 --batch 2 |
            awk -F, 'NR > 1 { sum += $2 * $3 } END { print sum }')
    }
    checks=$((checks + 1))
    [ "$counted" = "$listed" ] || fail "$listed launches in the list, $counted in the step"
    # A card without bfloat16 uses other kernels, each of which is listed and timed too.
    checks=$((checks + 1))
    DDPC_EMULATED_CAPABILITY=75 "$account" "$bin" --measure cuda --quick --batch 2 >measured || fail "fp16: $(cat measured)"
    grep -q '^| widen_rows | 1 | [0-9.]* | [0-9.]* | [0-9.]* |$' measured || fail "fp16: $(cat measured)"
fi

# Every kernel of the estimate is timed, on a device that computes; the figures mean nothing there.
checks=$((checks + 1))
"$account" "$bin" --measure ref --quick --batch 2 >measured || fail "not each kernel is timed once: $(cat measured)"
grep -qE '^\| attention_means_kernel \+ .* \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \|$' measured || fail "measured: $(cat measured)"
tally gpu_account
