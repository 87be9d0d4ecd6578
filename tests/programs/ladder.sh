#!/bin/sh
# ladder.sh BIN_DIR: bench/ablation.sh on a small network: all rungs, train_dp and train_ddp end with equal weights,
# also with uneven shares of a batch; the tables; the drawn figure; refused options. Times are not judged. Sentences:
# tests/report/test_ladder.py; bench_ladder by itself: rungs.sh.
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
. "$(dirname "$0")/checks.sh"
bin=$("$bench/../tests/programs/steady.sh" "$bin" "$work/bin")

small="--model mlp --hidden 24,16 --data digits --turns 2 --rounds 2 --steps 2 --patience 0"
ladder() { "$bench/ablation.sh" --bin "$bin" "$@"; }

run "two networks" ladder $small --global-batch 40 --link '100,1' --out "$work/a b"
cd "a b"
checks=$((checks + 1))
[ "$(grep -c ' equal$' ladder.txt)" = 26 ] || fail "not 22 rungs and four trainers are equal: $(cat ladder.txt)"
! grep -q DIFFER ladder.txt || fail "$(cat ladder.txt)"
wide=$(awk 'length($0) > 80 && !/^OpenBLAS/ { print; exit }' ladder.txt)
[ -z "$wide" ] || fail "wider than 80 columns: $wide"
grep -q 'over an emulated link of 100 Gbit/s and 1 us' ladder.txt || fail "not called emulated: $(cat ladder.txt)"

checks=$((checks + 1))
[ "$(grep -cE '^(kept threads .* train_dp|overlap .* train_ddp).*, within 5 %: (yes|no|unknown); weights' ladder.txt)" = 4 ] ||
    fail "not four trainers beside their rungs: $(cat ladder.txt)"

# One row per rung, with all numbers except the first rung's savings.
by_name='FNR == 1 { split("", at); for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
    function of(name) { if (!(name in at)) { print "no column", name; exit 1 } return $at[name] }'
csv() {
    program=$1
    shift
    awk -F, "$by_name
$program" "$@"
}
checks=$((checks + 1))
csv '{ rows++; for (i = 1; i <= NF; i++) if ($i == "") print "an empty column in " $0
      if (NF != columns) print NF " columns in " $0
      if (of("ms_p50") <= 0) print "no time in " $0
      emulated += of("link") ~ /^an emulated link of / && of("network") ~ / emulated$/ }
    END { if (rows != 22 || emulated != 11) print rows " rows, " emulated " of them emulated" }' ladder.csv >wrong.txt
[ ! -s wrong.txt ] || fail "ladder.csv: $(cat wrong.txt)"
# Each run lies between two probes, and all runs are bound to cores as the rungs are, which bind themselves.
checks=$((checks + 2))
[ "$(ls runs/*/probe.csv | wc -l)" = 12 ] || fail "not twelve runs between probes"
[ "$(grep -c -- '--bind cores' commands.txt)" = 8 ] || fail "a trainer is not bound: $(cat commands.txt)"

checks=$((checks + 1))
[ "$(grep -c '<td>equal</td>' section.html)" = 22 ] || fail "not 22 rungs in section.html: $(cat section.md)"
# The sentences are below the figure, or below the note that replaces it.
checks=$((checks + 1))
[ "$(sed -n '3{s/.*ladder.*/figure/p;}; 5p; 7p' section.md | sed 's/:.*//' | paste -sd ' ' -)" = \
    'figure **through memory** **100,1, emulated**' ] || fail "the section: $(cat section.md)"

if command -v gnuplot >/dev/null; then
    checks=$((checks + 2))
    [ -s ladder.svg ] || fail "there is no ladder.svg"
    grep -q '>own optimizer<' ladder.svg || fail "the rungs have no names in ladder.svg"
    grep -q '>100,1, emulated<' ladder.svg || fail "the figure does not say that the link is emulated"
    [ "$(grep -c '^<title>From DP to DDP' ladder.svg)" = 1 ] || fail "ladder.svg has not its own title"
    [ "$(grep -c 'prefers-color-scheme: dark' ladder.svg)" = 1 ] || fail "ladder.svg is dark twice or never"
    grep -q '<svg' section.html || fail "no figure in section.html"

    # The drawn bars: each rung's time and its savings stacked on it; the first and the last from 0.
    gnuplot -e numbers_only=1 plots/ladder.gp >gnuplot.txt 2>&1 || fail "gnuplot: $(cat gnuplot.txt)"
    awk '/^# Curve [0-9]+ of/ { curve = $3; next }
        /^#/ || NF < 8 || curve != 0 { next }
        { printf "%d %.6f %.6f %s\n", $2, $3, $4, $7 }' plots/ladder.drawn >seen.txt
    csv 'function bar(low, high, colour) {
            printf "%d %.6f %.6f %s\n", ++row, low, high, of("disturbed") == 1 ? "0x999999" : colour }
        function last() { if (row) printf "%d %.6f %.6f %s\n", ++row, 0, ms, sure ? "0x0072b2" : "0x999999" }
        of("saved_ms_p50") == "-" { last(); row = 0; bar(0, of("ms_p50"), "0xe69f00") }
        { ms = of("ms_p50"); saved = of("saved_ms_p50"); sure = of("disturbed") == 0 }
        saved != "-" && saved >= 0 { bar(ms, ms + saved, "0x009e73") }
        saved != "-" && saved < 0 { bar(ms + saved, ms, "0x882255") }
        END { last() }' ladder.csv >wanted.txt
    checks=$((checks + 1))
    [ "$(wc -l <seen.txt)" = 24 ] && cmp -s wanted.txt seen.txt || fail "ladder.svg shows: $(diff wanted.txt seen.txt)"
fi

# Three devices, 41 rows: shares of 14, 14 and 13.
cd "$work"
run "three devices" ladder $small --global-batch 41 --world 3 --link '' --out three
checks=$((checks + 1))
[ "$(grep -c ' equal$' three/ladder.txt)" = 13 ] || fail "three devices: $(cat three/ladder.txt)"

# Ctrl-C prints which runs are kept and how to continue; --resume makes the other runs and prints which were kept.
checks=$((checks + 4))
setsid env --default-signal=INT "$bench/ablation.sh" --bin "$bin" $small --global-batch 40 --link '' \
    --out "$work/cut off" >out.txt 2>err.txt </dev/null &
job=$!
tries=0
while [ ! -e "$work/cut off/runs/train_dp-0-1/command.txt" ] && [ $tries -lt 600 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
# Bash may lose a signal that arrives between two commands, so the key is pressed again, as a user would.
tries=0
until grep -q '^interrupted' err.txt || [ $tries -ge 9 ]; do
    kill -INT "-$job" || break
    tries=$((tries + 1))
    sleep 0.3
done
status=0
wait $job || status=$?
[ "$status" = 130 ] && grep -q '^interrupted after [1-6] of 6 runs; there is no report$' err.txt || fail "Ctrl-C: status $status, $(cat err.txt)"
grep -q "^to go on: bench/ablation.sh .* --link '' .* --resume$" err.txt || fail "no way to go on: $(cat err.txt)"
ls -i "$work/cut off/runs"/*/command.txt >before.txt
ladder $small --global-batch 40 --link '' --out "$work/cut off" --resume >out.txt 2>err.txt || fail "--resume: $(cat err.txt)"
[ "$(sed -n 's/^kept from before: //p' err.txt | sort)" = "$(sed 's|.*/runs/||; s|/.*||' before.txt | sort)" ] ||
    fail "other runs are said to be kept: $(cat err.txt before.txt)"
while read -r inode file; do
    [ "$(ls -i "$file")" = "$inode $file" ] || fail "made again: $file"
done <before.txt
[ "$(grep -c ' equal$' out.txt)" = 13 ] || fail "a resumed ladder: $(cat out.txt)"

# A failing run ends the command, and its output is shown.
checks=$((checks + 1))
status=0
ladder $small --data bogus --out failed >out.txt 2>err.txt || status=$?
[ "$status" = 1 ] && [ "$(grep -c '^error: this run failed: ' err.txt)" = 1 ] && [ ! -e failed/section.md ] ||
    fail "a run that fails: status $status, $(cat err.txt)"

mkdir other && echo mine >other/file
run "--help" ladder --help
for wrong in "--rounds 0" "--turns 0" "--steps x" "--patience x" "--world 1" "--link bogus" "--model mpl" "--hidden 0" "--bucket-cap-mb x" "--bogus" "--out" "--out other"; do
    checks=$((checks + 1))
    status=0
    # shellcheck disable=SC2086 # words
    ladder $small $wrong >out.txt 2>err.txt || status=$?
    [ "$status" = 2 ] && grep -q '^error: ' err.txt || fail "$wrong: status $status, $(cat err.txt)"
done
checks=$((checks + 1))
[ "$(cat other/file)" = mine ] || fail "a folder with other files was touched"
tally ladder
