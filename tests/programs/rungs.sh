#!/bin/sh
# rungs.sh BIN_DIR: bench_ladder on small networks: all rungs end with equal weights, and a rung with others is reported;
# printed medians are those of its rounds; refused options. Times are not judged. bench/ablation.sh: ladder.sh.
. "$(dirname "$0")/checks.sh"

# Each gradient in its own bucket, widths that fill no cache line, and images that are not square; and untrained weights prove
# nothing.
# (The launcher sets a rank's terminal width only if there is a terminal.)
run "rungs alone" "$bin/ddprun" --nproc-per-node 2 env DDPRUN_COLUMNS=80 "$bin/bench_ladder" --hidden 17,33 --data synthetic:1x6x9:10@200 \
    --global-batch 40 --rounds 3 --steps 1 --bucket-cap-mb 0 --csv rounds.csv
checks=$((checks + 2))
[ "$(grep -c ' equal$' out.txt)" = 11 ] || fail "$(cat out.txt)"
grep -q 'rounds 3/3 \[=*\] 100%' err.txt || fail "no bar of rounds: $(cat err.txt)"
[ "$(sed -n '1,2p' out.txt | paste -sd ' ' -)" = "mlp on synthetic, global batch 40, 2 devices over memory" ] || fail "$(cat out.txt)"
# The printed medians are those of the rounds in the CSV file, and of what a rung saves in each of them.
awk -F, 'function off(a, b) { return a - b > 0.000502 || b - a > 0.000502 }
    function median(a, b, c) { return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b) }
    FNR == NR { if (FNR > 1) { ms[$1, $5] = $6; rows++; if ($4 != "memory" || $7 != "equal") print "row " $0 }; next }
    / equal$/ {
        name = substr($0, 1, 14)
        sub(/ *$/, "", name)
        printed = substr($0, 57, 7)
        saved = substr($0, 65, 9)
        if (off(printed, median(ms[name, 1], ms[name, 2], ms[name, 3]))) print name " takes " printed
        if (last != "" && off(saved, median(ms[last, 1] - ms[name, 1], ms[last, 2] - ms[name, 2], ms[last, 3] - ms[name, 3])))
            print name " saves " saved
        last = name
    }
    END { if (rows != 33) print rows " rows" }' rounds.csv out.txt >wrong.txt
[ "$(sed 1d rounds.csv | cut -d , -f 3 | sort | uniq -c | tr -s ' \n' ' ')" = " 15 processes 18 threads " ] || fail "$(cat rounds.csv)"
sed 1d rounds.csv | cut -d , -f 1,2 | uniq | while IFS=, read -r name says; do
    [ "$(grep -cF "$(printf '%-14s %-40s ' "$name" "$says")" out.txt)" = 1 ] || echo "not as in the table: $name, $says"
done >>wrong.txt
[ ! -s wrong.txt ] || fail "the ladder: $(cat wrong.txt rounds.csv out.txt)"
run "over a link" "$bin/ddprun" --nproc-per-node 2 "$bin/bench_ladder" --hidden 24,16 --data digits --global-batch 40 \
    --link 100,1 --rounds 1 --steps 1 --csv rounds.csv
checks=$((checks + 1))
[ "$(grep -c ' equal$' out.txt) $(grep -c '^over an emulated link of 100 Gbit/s and 1 us$' out.txt) $(grep -c \
    ',an emulated link of 100 Gbit/s and 1 us,1,' rounds.csv)" = "11 1 11" ] || fail "over a link: $(cat out.txt rounds.csv)"
status=0
"$bin/ddprun" --nproc-per-node 2 "$bin/bench_ladder" --hidden 24,16 --data digits --global-batch 40 --rounds 1 \
    --steps 1 --lr 0 >out.txt 2>err.txt || status=$?
checks=$((checks + 1))
[ "$status" = 1 ] && grep -q 'the weights have not moved' out.txt || fail "without learning: $status, $(cat out.txt)"

status=0
"$bin/ddprun" --nproc-per-node 2 "$bin/bench_ladder" --hidden 24,16 --data digits --global-batch 40 --rounds 1 \
    --steps 8 --lr 1e6 >out.txt 2>err.txt || status=$?
checks=$((checks + 1))
[ "$status" = 1 ] && grep -q 'or are not finite' out.txt || fail "an endless loss: $status, $(cat out.txt)"

# A rung whose last weight is wrong is reported, with the parameter. All rungs are compared with the first one.
faulty() { # RUNG NAME COUNT: COUNT rungs differ then
    status=0
    FAULTY_RUNG=$1 "$bin/ddprun" --nproc-per-node 2 "$bin/faulty_ladder" --hidden 24,16 --data digits --global-batch 40 --rounds 1 \
        --steps 1 --csv faulty.csv >out.txt 2>err.txt || status=$?
    checks=$((checks + 3))
    [ "$status" = 1 ] && [ "$(grep -c ' DIFFER$' out.txt)" = "$3" ] || fail "rung $1 is wrong: $status, $(cat out.txt err.txt)"
    [ "$(grep -c "^$2: fc3.bias is the first parameter that differs" out.txt)" = 1 ] || fail "rung $1: $(cat out.txt)"
    [ "$(grep -c ',fc3.bias$' faulty.csv) $(grep -c ',equal$' faulty.csv)" = "$3 $((11 - $3))" ] || fail "rung $1: $(cat faulty.csv)"
}
faulty 0 "kept threads" 10
faulty 4 all-reduce 1
faulty 10 overlap 1

refuse 2 "one device has no ladder" "$bin/bench_ladder"
world=2
alone() { env RANK=0 WORLD_SIZE=$world LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$bin/bench_ladder" "$@"; } # for invalid options
refuse 2 "--global-batch 1: 2 devices need a row each" alone --global-batch 1
refuse 2 "samples with a class each are needed" alone --data shapes:8x8@40 --model segnet --global-batch 10
refuse 2 "samples with a class each are needed" alone --data 'synthetic:3->2@8' --global-batch 2
world=64
refuse 2 "--global-batch 63: 64 devices need a row each" alone --global-batch 63
world=65
refuse 2 "65 devices: a ladder has at most 64" alone --global-batch 63
tally rungs
