#!/usr/bin/env bash
# promises.sh BIN: bench/promises.sh. By hand: what the figures draw; then a small run, in which every count must be the
# formula's; and a run that sends other bytes than its name says must be seen. No time is judged. Formulas, counts, prices
# and sentences: tests/report/test_promises.py.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
for part in compare/{devices,progress,results,runs,section,disturbed} promises/measure; do
    source "bench/$part.sh"
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bin=$(tests/programs/steady.sh "$1" "$out/bin")
mkdir "$out/plots" "$out/runs"
failures=0 resume=0 planning=0

# expect WHAT WANTED GOT
expect() {
    [[ $2 != "$3" ]] || return 0
    printf '%s:\n%s\nnot\n%s\n' "$1" "$3" "$2"
    failures=$((failures + 1))
}

# report CODE: with results, those in $out
report() {
    PYTHONPATH=bench python3 -B -c "from report import promises; results = promises.Results('$out'); $1"
}

# drawn FIGURE: "curve x y ..." for every point that it shows.
drawn() {
    (cd "$out" && gnuplot -e numbers_only=1 "plots/$1.gp") >"$out/gnuplot.txt" 2>&1 || cat "$out/gnuplot.txt"
    awk '/^# Curve [0-9]+ of/ { curve = $3 } /^#/ || !NF || $NF == "u" { next }
        { line = curve; for (i = 1; i < NF; i++) line = line " " $i; print line }' "$out/plots/$1.drawn"
}
if command -v gnuplot >/dev/null; then
    cat >"$out/undisturbed.csv" <<'END'
set,name,round,disturbed,ms
mlp,plain,1,0,10
mlp,noop,1,0,9
mlp,plain,2,0,12
mlp,noop,2,0,11.5
mlp,plain,3,0,10
mlp,noop,3,1,3
END
    sed -n 's/^mlp,/convnet,/p' "$out/undisturbed.csv" | cat "$out/undisturbed.csv" - >"$out/prices.csv"
    sed -i 's/^convnet,noop,2,0,/convnet,noop,2,1,/' "$out/prices.csv"
    echo model,promise,messages,bytes,formula_messages,formula_bytes,held >"$out/counts.csv"
    printf '%s\n' "models mlp convnet" "cores 2" "patience 0" >"$out/facts.txt"
    report "promises.show(results)" >"$out/drawn.txt"
    expect "the figure" "![A promise's price: milliseconds added to (right) or saved from (left) a step](promises.svg)" "$(grep '^!' "$out/section.md" | paste -sd ' ' -)"
    # A bar from 0 to the price, and the quartiles; what was disturbed is grey.
    expect "the bars" $'-0.75 1 0x0072b2\n-1 2 0xbbbbbb' "$(drawn promises | awk '$1 == 0 { print $5, $3, $8 }')"
    expect "their quartiles" "$(csv '{ print of("price") + 0 " " of("row") " " of("low") + 0 " " of("high") + 0 }' \
        "$out/plots/promises.csv")" "$(drawn promises | awk '$1 == 1 { print $2, $3, $4, $5 }')"
fi

# A small run.
results="$out/small results"
bench/promises.sh --quick --bin "$bin" --out "$results" >"$out/log" 2>&1 || { cat "$out/log" && exit 1; }
expect "rows of counts" 22 "$(($(wc -l <"$results/counts.csv") - 1))"
expect "counts that are not the formula's" "" "$(grep ',0$' "$results/counts.csv" || true)"
# convnet for 28 x 28 pixels: gradients of 82176 bytes in one bucket, 8 of them, and 400 bytes of buffers; its two batch
# norms have 16 and 32 channels. fsdp sends 3 halves of 82152 bytes, which need no whole lines.
expect "convnet's bytes" "plain,2,82576 find-unused,3,82608 fp16,2,41488 no-buffers,1,82176 sync-batch-norm,6,83352 fsdp,15,123228" \
    "$(for name in plain find-unused fp16 no-buffers sync-batch-norm fsdp; do
        grep "^convnet,$name," "$results/counts.csv" | cut -d, -f2-4
    done | paste -sd ' ' -)"
expect "lines over 80 columns" "" "$(awk 'length($0) > 80 && !/^the section/' "$out/log")"
expect "headings" 1 "$(grep -c '<h2 ' "$results/section.html")"
expect "what is left" 2 "$(grep -cE '^round 1 of 1: [a-z]+ \([0-9]+ of [0-9]+ runs done, about [0-9]+:[0-9]+ left\)$' "$out/log")"

# Each rank computes on its own cores. Each run whose times count lies between two probes.
# unbound PROGRAM PATTERN: the timed runs of a program whose command has no such part.
unbound() {
    grep -l "/$1 " "$results"/runs/*/command.txt | xargs -d '\n' grep -LE -e "$2" | sed 's,/command.txt,,; s,.*/,,' | paste -sd ' ' -
}
expect "ranks without their cores" "" "$(unbound train_ddp "--bind cores")"
expect "runs without probes" "" "$(find "$results/runs" -mindepth 1 -maxdepth 1 ! -name 'count-*' ! -name 'summary-*' ! -exec test -s {}/probe.csv \; -print)"
expect "the machine" 9 "$(grep -cE '^- (Processor|Memory|System|Compiler|Cores: .*, governor .*, load at the beginning|Variables that change the libraries|Commit|BLAS|Command): .' \
    "$results/section.md")"
# Half floats under the name of plain.
promises_of() { echo plain --comm-hook fp16; }
models=convnet
trace_promises
printf '%s\n' "models convnet" "promises-convnet plain" >"$out/facts.txt"
expect "other bytes are seen" "[['convnet', 'plain', 2, 41488, 2, 82576, 0]]" "$(report "print(promises.count_rows(results))")"
echo "promises: $failures failures"
[[ $failures == 0 ]]
