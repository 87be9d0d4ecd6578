#!/bin/sh
# compare_interrupted.sh BIN_DIR: Ctrl-C in bench/compare.sh keeps the completed runs and prints how to continue;
# --resume makes only the missing runs and ends with the results of an uninterrupted comparison.
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
. "$(dirname "$0")/checks.sh"
bin=$("$bench/../tests/programs/steady.sh" "$bin" "$work/bin")

compare() { # FOLDER OPTION...: in a subshell whose process is replaced by the comparison
    folder=$1
    shift
    exec setsid env --default-signal=INT "$bench/compare.sh" --bin "$bin" --quick --repeats 1 --patience 0 --model toy --world 3 \
        --out "$folder" "$@" >out.txt 2>err.txt </dev/null
}

(compare "cut off") &
job=$!
tries=0
while [ "$(ls "cut off/runs" 2>/dev/null | wc -l)" -lt 4 ] && [ $tries -lt 600 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
checks=$((checks + 1))
kill -s INT -- -$job
status=0
wait $job || status=$?
[ $status = 130 ] || fail "status $status of an interrupted comparison: $(cat err.txt)"
grep -Eq '^interrupted after [0-9]+ of [0-9]+ runs; there is no report$' err.txt || fail "$(cat err.txt)"
grep -Fq "kept: the finished runs, in $work/cut off/runs" err.txt || fail "$(cat err.txt)"
grep -Eq '^to go on: bench/compare.sh .* --resume$' err.txt || fail "no way to go on: $(cat err.txt)"
for kept in "cut off/runs"/*; do
    [ -s "$kept/summary.json" ] || fail "half a run was kept: $(ls "$kept")"
done
[ -d "$kept" ] || fail "no run was kept"
ls -i "cut off/runs"/*/summary.json >before.txt

checks=$((checks + 1))
(compare "cut off" --resume) || fail "--resume: $(cat err.txt)"
checks=$((checks + 1))
while read -r inode file; do
    [ "$(ls -i "$file")" = "$inode $file" ] || fail "made again: $file"
done <before.txt

checks=$((checks + 1))
# Without gnuplot: numbers and sentences, and a note that figures are missing.
mkdir path
for folder in /usr/local/bin /usr/bin $([ -L /bin ] || echo /bin); do ln -s "$folder"/* path/ 2>/dev/null || true; done
rm -f path/gnuplot* path/apt-get path/sudo
(PATH=$work/path && compare whole) || fail "an uninterrupted comparison: $(cat err.txt)"
cmp -s "cut off/equivalence.csv" whole/equivalence.csv || fail "another equivalence.csv"
[ "$(ls "cut off/runs")" = "$(ls whole/runs)" ] || fail "other runs"
sed "s|'$work/cut off|'$work/whole|g; s|$work/cut off|$work/whole|g" "cut off/commands.txt" | tr -d "'" >commands.txt
tr -d "'" <whole/commands.txt | cmp -s - commands.txt || fail "other commands: $(diff whole/commands.txt commands.txt | head -n 4)"
for folder in "cut off" whole; do cut -d, -f 1-6,11,12,26 "$folder/summary.csv" >"$folder.csv"; done
cmp -s "cut off.csv" whole.csv || fail "another summary: $(diff "cut off.csv" whole.csv)"
if grep -q '^no report: there is no Python with Jinja2' err.txt; then
    tally compare_interrupted
    exit
fi
[ -s "cut off/report.html" ] || fail "no report"
checks=$((checks + 1))
[ -z "$(find whole -name '*.svg')" ] || fail "figures without gnuplot"
grep -q '^there will be no report, or one without figures$' err.txt || fail "not a word about figures: $(cat err.txt)"
grep -q 'moving data and waiting\|disturbed' whole/report.md || fail "no sentences in place of the figures"
checks=$((checks + 1))
awk -F, 'NR > 1 && ($5 <= 0 || $6 !~ /^[01]$/) { exit 1 } END { exit NR != 4 }' whole/repeats.csv ||
    fail "repeats.csv: $(cat whole/repeats.csv)"

tally compare_interrupted
