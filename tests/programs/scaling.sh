#!/usr/bin/env bash
# scaling.sh BIN: a small run of bench/scaling.sh, in which the runs, the tables and the drawn figures agree, and a dry
# run with a wrong number of bytes is detected. Times are not judged. The sentences: tests/report/test_scaling.py.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bin=$("$root/tests/programs/steady.sh" "$1" "$out/bin")
failures=0

# expect WHAT WANTED GOT
expect() {
    [[ $2 != "$3" ]] || return 0
    printf '%s:\n%s\nnot\n%s\n' "$1" "$3" "$2"
    failures=$((failures + 1))
}

# scale STATUS OPTION...
results="$out/small results"
scale() {
    local status=0
    bench/scaling.sh --quick --bin "$bin" --out "$results" "${@:2}" >"$out/log" 2>&1 || status=$?
    expect "status of ${*:2}" "$1" "$status"
    [[ $status == "$1" ]] || cat "$out/log"
}
scale 0 --links "1 10 100" --worlds "2 3"
expect "rows" "$(printf '%s\n' single-1-{30,60}-none {dp,ddp}-2-60-10 {dp,ddp}-3-{60,90}-10 {fp16,powersgd}-2-60-10 \
    {dp,ddp,fp16,powersgd}-2-60-{1,100} | sort)" "$(tail -n +2 "$results/scaling.csv" | cut -d, -f1-4 | tr , - | sort)"
expect "runs" "$(tail -n +2 "$results/scaling.csv" | wc -l)" "$(find "$results/runs" -name 'step-*' | wc -l)"
for one in fp16:fp16 powersgd:powersgd; do
    expect "the hook of $one" 3 "$(cat "$results"/runs/step-"${one%:*}"-*/command.txt | grep -c -- "--comm-hook ${one#*:}")"
done
expect "links" "1 10 100" "$(cat "$results"/runs/step-fp16-*/command.txt | sed 's/.*--link \([0-9.]*\),20 .*/\1/' | sort -n | paste -sd ' ' -)"
expect "batches" "dp,1 dp,0 ddp,1 ddp,0 zero1,1 zero1,0" "$(tail -n +2 "$results/scaling-batches.csv" | cut -d, -f1,3 | paste -sd ' ' -)"
expect "a row more per device" "2 2 2" "$(awk -F, 'NR > 1 && $3 { fits = $2 } NR > 1 && !$3 { print $2 - fits }' "$results/scaling-batches.csv" |
    paste -sd ' ' -)"
expect "what exceeds 1 MB" "" "$(awk -F, 'NR > 1 && ($11 <= 1000000) != $3' "$results/scaling-batches.csv")"
expect "memory" "$(printf '%s\n' gpt-small-single-1 gpt-small-{dp,ddp,zero1,fsdp}-{2,4} gpt2-single-1 gpt2-{dp,ddp,zero1,fsdp}-{2,4} | sort)" \
    "$(tail -n +2 "$results/scaling-memory.csv" | cut -d, -f1-3 | tr , - | sort)"
expect "what was trained" 9 "$(awk -F, 'NR > 1 && $8 == $7' "$results/scaling-memory.csv" | wc -l)"
expect "what moves" "ddp-2 fsdp-2 fsdp-whole-2 ddp-4 fsdp-4 fsdp-whole-4" "$(tail -n +2 "$results/scaling-traffic.csv" | cut -d, -f1,2 | tr , - | paste -sd ' ')"
expect "sharded" 1 "$(tail -n +2 "$results/scaling-sharded.csv" | wc -l)"
expect "rows of a sharded step" 1 "$(grep -c 'gpt-small on two devices, 8 texts a step' "$results/section.md")"
expect "headings" 1 "$(grep -c '<h2 ' "$results/section.html")"
if command -v gnuplot >/dev/null; then
    expect "figures" 4 "$(grep -c '<figure ' "$results/section.html")"
    for name in links devices batches memory; do (cd "$results" && gnuplot -e numbers_only=1 "plots/scaling-$name.gp"); done
    # drawn FIGURE CURVE: prints x and y of its points.
    drawn() { awk -v curve="$2" '/^# Curve [0-9]+ of/ { mine = $3 == curve } /^#/ || !NF || $NF == "u" { next } mine { print $1, $2 }' "$results/plots/$1.drawn"; }
    for curve in "0 dp" "1 ddp" "2 fp16" "3 powersgd"; do
        expect "the line of ${curve#* }" "$(awk -F, -v one="${curve#* }" '$1 == one && $2 == 2 { print $4, $6 + 0 }' "$results/scaling.csv")" \
            "$(drawn scaling-links "${curve% *}")"
    done
    expect "what FSDP holds of gpt-small" "$(awk -F, '$1 == "gpt-small" && $2 == "fsdp" { printf "%d %.9g\n", $3, $7 / 1e6 }' "$results/scaling-memory.csv")" \
        "$(drawn scaling-memory 4 | head -n 2)"
    expect "what DP holds" "$(awk -F, '$1 == "dp" && $3 { print $4 / 1e6 / 2, 1 }' "$results/scaling-batches.csv")" \
        "$(drawn scaling-batches 0 | head -n 1)"
fi
# A train_dp whose dry run prints another peak than the run has: each part detects it. The other runs are kept.
mv "$bin/train_dp" "$out/train_dp"
printf '#!/bin/sh\n"%s" "$@" | sed "s/^\\(peak_bytes=[0-9]*\\)[0-9]/\\19/"\n' "$out/train_dp" >"$bin/train_dp"
chmod +x "$bin/train_dp"
rm -r "$results"/runs/{hold-gpt-small-dp-2-dry,dry-dp-*}
scale 1 --only batches --resume
expect "batches whose peak differs" "dp dp" "$(awk -F, 'NR > 1 && $10 != $11 { print $1 }' "$results/scaling-batches.csv" | paste -sd ' ' -)"
scale 1 --only memory --resume
expect "memory that differs" "gpt-small,dp,2" "$(grep ',0$' "$results/scaling-memory.csv" | cut -d, -f1-3)"
mv "$out/train_dp" "$bin/train_dp"
scale 0 --only links --links 10 --resume
grep -q '^kept from before: step-fp16-2-60-10-1$' "$out/log" || expect "--resume" "a run that was kept" "$(cat "$out/log")"
rm -r "$results"/runs/step-*
scale 0 --only links --links 10
expect "--only links" "4 0" "$(find "$results/runs" -name 'step-*' | wc -l) $(find "$results" -name scaling-batches.csv | wc -l)"
scale 2 --only batches --memory-mb 10000

echo "scaling: $failures failures"
[[ $failures == 0 ]]
