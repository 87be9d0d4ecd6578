#!/bin/sh
# ladder.sh BIN_DIR: bench/ablation.sh on a small network: all rungs, train_dp and train_ddp have the same
# weights, with a batch that the devices share unevenly, too; the tables; what is refused. Times are not
# looked at.
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
. "$(dirname "$0")/checks.sh"

small="--model mlp --hidden 24,16 --data digits --rounds 2 --steps 2"
ladder() { "$bench/ablation.sh" --bin "$bin" "$@"; }

run "two networks" ladder $small --global-batch 40 --link '100,1' --out "$work/a b"
cd "a b"
checks=$((checks + 1))
[ "$(grep -c ' equal$' ladder.txt)" = 24 ] || fail "not twenty rungs and four trainers are equal: $(cat ladder.txt)"
! grep -q DIFFER ladder.txt || fail "$(cat ladder.txt)"
wide=$(awk 'length($0) > 80 && !/^OpenBLAS/ { print; exit }' ladder.txt)
[ -z "$wide" ] || fail "wider than 80 columns: $wide"
grep -q 'over an emulated link of 100 Gbit/s and 1 us' ladder.txt || fail "not called emulated: $(cat ladder.txt)"

# A row for each rung: all numbers are there, but for what the first one saves over nothing.
checks=$((checks + 1))
awk -F, 'NR == 1 { columns = NF; next }
    { rows++; for (i = 1; i <= NF; i++) if ($i == "") print "an empty column in " $0
      if (NF != columns) print NF " columns in " $0
      if ($(NF - 5) <= 0) print "no time in " $0
      emulated += /,an emulated link of / }
    END { if (rows != 20 || emulated != 10) print rows " rows, " emulated " of them emulated" }' ladder.csv >wrong.txt
[ ! -s wrong.txt ] || fail "ladder.csv: $(cat wrong.txt)"
checks=$((checks + 1))
[ "$(grep -c '^train_d' trainers.csv)" = 8 ] || fail "trainers.csv: $(cat trainers.csv)"

checks=$((checks + 1))
[ "$(grep -c '<td>equal</td>' section.html)" = 20 ] || fail "not twenty rungs in section.html: $(cat section.md)"

if command -v gnuplot >/dev/null; then
    checks=$((checks + 2))
    [ -s ladder.svg ] || fail "there is no ladder.svg"
    grep -q '>own optimizer<' ladder.svg || fail "the rungs have no names in ladder.svg"
    grep -q '>100,1, emulated<' ladder.svg || fail "the figure does not say that the link is emulated"
    [ "$(grep -c '^<title>From DP to DDP' ladder.svg)" = 1 ] || fail "ladder.svg has not its own title"
    [ "$(grep -c 'prefers-color-scheme: dark' ladder.svg)" = 1 ] || fail "ladder.svg is dark twice or never"
    grep -q '<svg' section.html || fail "no figure in section.html"
fi

# Three devices, 41 rows: 14, 14 and 13.
cd "$work"
run "three devices" ladder $small --global-batch 41 --world 3 --link '' --out three
checks=$((checks + 1))
[ "$(grep -c ' equal$' three/ladder.txt)" = 12 ] || fail "three devices: $(cat three/ladder.txt)"

# Every gradient in a bucket of its own; and weights that nobody has trained are no proof.
run "rungs alone" "$bin/ddprun" --nproc-per-node 2 "$bin/bench_ladder" --hidden 24,16 --data digits \
    --global-batch 40 --rounds 1 --steps 1 --bucket-cap-mb 0
checks=$((checks + 1))
[ "$(grep -c ' equal$' out.txt)" = 10 ] || fail "$(cat out.txt)"
status=0
"$bin/ddprun" --nproc-per-node 2 "$bin/bench_ladder" --hidden 24,16 --data digits --global-batch 40 --rounds 1 \
    --steps 1 --lr 0 >out.txt 2>err.txt || status=$?
checks=$((checks + 1))
[ "$status" = 1 ] && grep -q 'the weights have not moved' out.txt || fail "without learning: $status, $(cat out.txt)"

# Ctrl-C says what it keeps and how to go on; --resume makes the other runs, and says which it has kept.
checks=$((checks + 4))
setsid env --default-signal=INT "$bench/ablation.sh" --bin "$bin" $small --global-batch 40 --link '' \
    --out "$work/cut off" >out.txt 2>err.txt </dev/null &
job=$!
tries=0
while [ ! -e "$work/cut off/runs/train_dp-0-1/command.txt" ] && [ $tries -lt 600 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
kill -INT "-$job"
status=0
wait $job || status=$?
[ "$status" = 130 ] && grep -q '^interrupted; kept: [1-4] finished runs' err.txt || fail "Ctrl-C: status $status, $(cat err.txt)"
grep -q "^to go on: bench/ablation.sh .* --link '' .* --resume$" err.txt || fail "no way to go on: $(cat err.txt)"
ls -i "$work/cut off/runs"/*/command.txt >before.txt
ladder $small --global-batch 40 --link '' --out "$work/cut off" --resume >out.txt 2>err.txt || fail "--resume: $(cat err.txt)"
[ "$(sed -n 's/^kept from before: //p' err.txt | sort)" = "$(sed 's|.*/runs/||; s|/.*||' before.txt | sort)" ] ||
    fail "other runs are said to be kept: $(cat err.txt before.txt)"
while read -r inode file; do
    [ "$(ls -i "$file")" = "$inode $file" ] || fail "made again: $file"
done <before.txt
[ "$(grep -c ' equal$' out.txt)" = 12 ] || fail "a resumed ladder: $(cat out.txt)"

mkdir other && echo mine >other/file
run "--help" ladder --help
for wrong in "--rounds 0" "--steps x" "--world 1" "--bogus" "--out" "--out other"; do
    checks=$((checks + 1))
    status=0
    # shellcheck disable=SC2086 # words
    ladder $small $wrong >out.txt 2>err.txt || status=$?
    [ "$status" = 2 ] && grep -q '^error: ' err.txt || fail "$wrong: status $status, $(cat err.txt)"
done
checks=$((checks + 1))
[ "$(cat other/file)" = mine ] || fail "somebody's folder was touched"
refuse 2 "one device has no ladder" "$bin/bench_ladder"
tally ladder
