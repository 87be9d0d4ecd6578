#!/usr/bin/env bash
# promises.sh BIN: bench/promises.sh. By hand: what its formulas say of a few shapes, what is counted in a trace,
# what becomes of prices; then a small run, in which every count must be the formula's; and a run that sends
# other bytes than its name says must be seen. No time is judged.
set -euo pipefail
export LC_ALL=C
bin=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
for part in compare/runs compare/tables compare/section promises/measure promises/table; do
    source "bench/$part.sh"
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mkdir "$out/plots" "$out/runs"
failures=0 resume=0

# expect WHAT WANTED GOT
expect() {
    [[ $2 != "$3" ]] || return 0
    printf '%s:\n%s\nnot\n%s\n' "$1" "$3" "$2"
    failures=$((failures + 1))
}

# A matrix of 10 x 20 (800 bytes: 13 cache lines, 832) and a vector of 10 (64 bytes), two buckets, 24 bytes of
# buffers. PowerSGD: 4 (10 + 20) and the vector's 40. A 3 x 4 matrix is not worth it.
shapes=$'10 20\n10'
expect plain "3 920" "$(formula plain 2 24 <<<"$shapes")"
expect fp16 "3 472" "$(formula fp16 2 24 <<<"$shapes")"
expect noop "1 24" "$(formula noop 2 24 <<<"$shapes")"
expect find-unused "4 928" "$(formula find-unused 2 24 <<<"$shapes")"
expect no-buffers "2 896" "$(formula no-buffers 2 24 <<<"$shapes")"
expect powersgd "6 160" "$(formula powersgd 2 0 <<<"$shapes")"
expect "powersgd, a small matrix" "6 208" "$(formula powersgd 2 0 <<<"$shapes"$'\n3 4')"

cat >"$out/trace.json" <<'END'
{"ph": "X", "name": "all_reduce", "pid": 0, "tid": 1, "ts": 5, "dur": 1, "args": {"number": 1, "bytes": 99}},
{"ph": "X", "name": "optimizer", "pid": 0, "tid": 0, "ts": 8, "dur": 1, "args": {"number": 0}},
{"ph": "X", "name": "backward", "pid": 0, "tid": 0, "ts": 10, "dur": 10, "args": {"number": 1}},
{"ph": "i", "name": "bucket is ready", "pid": 0, "tid": 0, "ts": 16, "s": "t", "args": {"bucket": 1}},
{"ph": "i", "name": "bucket is ready", "pid": 0, "tid": 0, "ts": 14, "s": "t", "args": {"bucket": 0}},
{"ph": "X", "name": "all_reduce", "pid": 0, "tid": 1, "ts": 15, "dur": 1, "args": {"number": 2, "bucket": 0, "bytes": 12}},
{"ph": "X", "name": "all_reduce", "pid": 1, "tid": 1, "ts": 15, "dur": 1, "args": {"number": 2, "bucket": 0, "bytes": 12}},
{"ph": "X", "name": "all_reduce", "pid": 0, "tid": 1, "ts": 17, "dur": 1, "args": {"number": 3, "bucket": 1, "bytes": 34}},
{"ph": "X", "name": "optimizer", "pid": 0, "tid": 0, "ts": 21, "dur": 1, "args": {"number": 1}},
{"ph": "X", "name": "all_reduce", "pid": 0, "tid": 1, "ts": 30, "dur": 1, "args": {"number": 4, "bytes": 77}},
END
expect "rank 0's last step" $'12\n34' "$(of_last_step "$out/trace.json")"
expect buckets 2 "$(buckets_in "$out/trace.json")"
expect "the first bucket" 0.400 "$(first_ready "$out/trace.json")"

# Prices: differences within a round; and the parts of a step add up to it.
cat >"$out/prices.csv" <<'END'
set,name,round,ms
mlp,plain,1,10
mlp,noop,1,9
mlp,plain,2,12
mlp,noop,2,11.5
limit,whole,1,14
limit,whole-optimizer,1,2
limit,half,1,8
limit,half-optimizer,1,2
limit,pair-0,1,8.25
limit,pair-1,1,8.5
limit,whole,2,14
limit,whole-optimizer,2,2
limit,half,2,8
limit,half-optimizer,2,2
limit,pair-0,2,8.5
limit,pair-1,2,8.25
END
expect "a price" $'noop\t10.2500\t-0.7500\t-0.8750\t-0.6250\t0.9292' "$(price_rows mlp | tail -n 1)"
expect "the parts of a step" "7.0000 1.0000 0.0000 0.5000 1.7500 0.7500 11.0000" \
    "$(limit_rows | awk -F'\t' 'NR < 8 { printf "%s%s", separator, $2; separator = " " }')"
expect "the sentence" "DDP(2) takes 11.00 ms, 1.077 times the same without communication (at most 1.06 is aimed at), \
and is 1.28 times as fast as one device. What is missing to 2: the optimizer, which every rank runs whole, +1.00 ms; \
products of half the batch +0.00; two devices on one memory +0.50; what DDP does besides +1.75; communication +0.75." \
    "$(limit_sentence)"

# plain's rounds lie 20 % apart, noop's 28 %, the pair's 3 %, the other four nothing.
expect "steady" "1.5 steady" "$(spread "$out/prices.csv") $(is_steady "$out/prices.csv" && echo steady)"
printf 'set,name,round,ms\nmlp,plain,1,10\nmlp,plain,2,15\n' >"$out/disturbed.csv"
expect "disturbed" "The machine was **disturbed**: the same run's times lie 50.0 % apart, so nothing is said of them." \
    "$(is_steady "$out/disturbed.csv" || true)"

# A small run.
results="$out/small results"
bench/promises.sh --quick --bin "$bin" --out "$results" >"$out/log" 2>&1 || { cat "$out/log" && exit 1; }
expect "rows of counts" 20 "$(($(wc -l <"$results/counts.csv") - 1))"
expect "counts that are not the formula's" "" "$(grep ',0$' "$results/counts.csv" || true)"
# convnet for 28 x 28 pixels: gradients of 82176 bytes in one bucket, 8 of them, and 400 bytes of buffers.
expect "convnet's bytes" "plain,2,82576 find-unused,3,82608 fp16,2,41488 no-buffers,1,82176" \
    "$(for name in plain find-unused fp16 no-buffers; do
        grep "^convnet,$name," "$results/counts.csv" | cut -d, -f2-4
    done | paste -sd ' ' -)"
expect "lines over 80 columns" "" "$(awk 'length($0) > 80' "$results/table.txt")"
expect "headings" 1 "$(grep -c '<h2>' "$results/section.html")"
if command -v gnuplot >/dev/null; then
    expect "the names of the lines" "one device DP DDP" \
        "$(grep -oE '>(one device|DP|DDP)</tspan>' "$results/batches.svg" | sed 's,^>\(.*\)</.*,\1,' | paste -sd ' ' -)"
fi

# Half floats under the name of plain.
promises_of() { echo plain --comm-hook fp16; }
models=convnet
count_promises
expect "other bytes are seen" "convnet,plain,2,41488,2,82576,0" "$(tail -n 1 "$out/counts.csv")"
echo "promises: $failures failures"
[[ $failures == 0 ]]
