#!/usr/bin/env bash
# paper.sh BIN: bench/paper.sh: repeated runs; then a small run, whose drawn numbers equal the measured numbers and the
# paper's. Times are not judged. Sentences: tests/report/test_paper.py.
set -euo pipefail
export LC_ALL=C
bin=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
source bench/setup.sh
for part in progress results runs disturbed section; do
    source "bench/compare/$part.sh"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/hand
mkdir -p "$out/runs" "$out/plots"
failures=0 planning=0 resume=0 kind=cpu

# expect WHAT WANTED GOT
expect() {
    [[ $2 != "$3" ]] || return 0
    printf '%s:\n%s\nnot\n%s\n' "$1" "$3" "$2"
    failures=$((failures + 1))
}

# Other load: the probe before the second run is slow, so this run is repeated, successfully.
cp "$(type -P true)" "$out/ddprun"
printf '#!/bin/sh\nrate=$(head -n 1 "%s") && sed -i 1d "%s"\necho "gflops=${rate:-100} triad_gbps=50"\n' "$out/rates" "$out/rates" \
    >"$out/bench_probe"
chmod +x "$out/bench_probe"
printf '%s\n' 100 100 100 100 40 >"$out/rates"
for name in skip-mlp-10gbe-1-1 skip-mlp-10gbe-1-2 skip-mlp-10gbe-1-3 skip-mlp-10gbe-1-4; do
    bin=$out between_probes "$name" run_once "$name" "$out/ddprun"
done
disturbed_runs >"$out/disturbed.txt"
expect "what was disturbed" "skip-mlp-10gbe-1-4" "$(cat "$out/disturbed.txt")"
bin=$out repeat_disturbed_runs 60 2>"$out/said"
expect "made once more" "1 disturbed runs once more" "$(cut -d, -f1 "$out/said")"
expect "after that" "" "$(cat "$out/disturbed.txt")"
expect "and its probes" "100 100" "$(csv '{ print of("gflops") }' "$out/runs/skip-mlp-10gbe-1-4/probe.csv" | paste -sd ' ')"
a_run() { run_once skip-mlp-1 true && run_once skip-mlp-2 true; }
plan a_run
run_has_ended 40000
expect "progress" "round 2 (1 of 2 runs done, about 0:40 left)" "$(begin_section "round 2" 2>&1)"

# A small run.
results="$work/small results"
bench/paper.sh --quick --bin "$bin" --out "$results" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
for figure in "buckets bucket_mb 2" "worlds ranks 2" "skip every 4"; do
    read -r name column count <<<"$figure"
    expect "rows of $name" "$count" "$(($(wc -l <"$results/$name.csv") - 1))"
    expect "links of $name" "$count" "$(grep -c ',10gbe (emulated),' "$results/$name.csv")"
done
expect "lines over 80 columns" "" "$(awk 'length($0) > 80 && !/^the section/' "$work/log")"
expect "headings" 1 "$(grep -c '<h2 ' "$results/section.html")"

# drawn NAME: prints "panel curve x y ..." for every point of the figure.
drawn() {
    (cd "$results" && gnuplot -e numbers_only=1 "plots/paper-$1.gp") || echo "gnuplot"
    awk '/^# Curve [0-9]+ of/ { curve = $3; panel += curve == 0; next }
        /^#/ || !NF || $NF == "u" { next }
        { line = panel - 1 " " curve; for (i = 1; i < NF; i++) line = line " " $i; print line }' \
        "$results/plots/paper-$1.drawn"
}
# points PANEL CURVES NAME: prints "x,y" of the first CURVES curves of a drawn panel.
points() {
    drawn "$3" | awk -v panel="$1" -v curves="$2" '$1 == panel && $2 < curves { printf "%d,%.6g ", $3, $4 }'
}
if command -v gnuplot >/dev/null; then
    expect "figures" 5 "$(grep -c '<figure ' "$results/section.html")"
    expect "texts for the mouse" 5 "$(grep -l 'class="value"><title>' "$results"/*.svg | wc -l)"
    for name in buckets worlds skip; do
        expect "what is drawn of $name" "$(awk -F, 'NR > 1 { printf "%d,%.6g ", NR - 1, $6 }' "$results/$name.csv")" \
            "$(points 0 1 $name)"
    done
    for figure in "buckets 7 4" "worlds 9 4" "skip 10 2"; do
        read -r name number lines <<<"$figure"
        expect "what is drawn of the paper's $name" "$(awk -F, -v number="$number" '
            NR > 1 && (number != 10 || $3 == 256) { x = $1 == run ? x + 1 : 1; run = $1; printf "%d,%.6g ", x, $NF }' \
            "bench/paper/figure$number.csv")" "$(points 1 "$lines" $name)"
    done
    expect "what is drawn of the parts" "$(awk -F, '
        FNR == 1 { file++; next }
        file == 1 { total = $5 + $6 + $7 + $8 + $9; for (c = 1; c <= 4; c++) part[c] = $(4 + c) / total; end = $10 / total }
        file == 2 { for (c = 1; c <= 4; c++) part[c] = $(1 + c); end = $6 }
        { row++; for (c = 1; c <= 4; c++) print c - 1, row, sprintf("%.3f", part[c]); print 16, row, sprintf("%.3f", end) }' \
        "$results/breakdown.csv" bench/paper/figure6.csv | sort)" "$(drawn breakdown | awk '
        $2 < 4 { printf "%d %d %.3f\n", $2, $4, $6 - $5 }
        $2 == 16 { printf "%d %d %.3f\n", $2, $4 + 0.45, $3 }' | sort)"
    for batch in 8 256; do
        expect "the losses of batch $batch" "$(awk -F, -v batch=$batch '$2 == batch { printf "%d,%.6g ", $4, $5 }' \
            "$results/convergence.csv")" "$(points $((batch == 256)) 4 convergence)"
        expect "the paper's losses of batch $batch" "$(awk -F, -v batch=$batch '$1 == batch && $4 { printf "%d,%.6g ", $3, $4 }' \
            bench/paper/figure11.csv)" "$(points $((2 + (batch == 256))) 4 convergence)"
    done
    expect "sentences right below their figures" 5 "$(grep -A 2 '^!\[' "$results/section.md" | grep -c '\.$')"
fi
echo "paper: $failures failures"
[[ $failures == 0 ]]
