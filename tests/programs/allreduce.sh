#!/bin/sh
# allreduce.sh BIN_DIR [cuda]: bench_allreduce's ranks as processes, as threads and under a launcher (cuda: only
# the last, through NCCL): every size that was asked for is measured, every element checked, and the table's
# columns follow from each other. No time is judged.
. "$(dirname "$0")/checks.sh"
unset RANK WORLD_SIZE DDPRUN_TOKEN

# table WORLD "BYTES...": what out.txt must hold.
table() {
    checks=$((checks + 1))
    awk -v world="$1" -v sizes="$2" -v loose=0.02 '
        /^#/ { next }
        $1 == "bytes" { for (i = 1; i <= NF; i++) at[$i] = i; next }
        {
            bytes = $at["bytes"]
            seen = seen (seen == "" ? "" : " ") bytes
            if ($at["count"] != bytes / 4) print "count of " bytes
            if ($at["wrong"] != "0") print "wrong elements of " bytes
            p50 = $at["p50_us"]
            if (!(p50 > 0) || $at["min_us"] > p50 || p50 > $at["p99_us"]) print "times of " bytes
            if (differ($at["algbw"], bytes / p50 / 1000)) print "algbw of " bytes
            if (world == 1 && $at["busbw"] != "-") print "busbw of one rank"
            if (world > 1 && differ($at["busbw"], $at["algbw"] * 2 * (world - 1) / world)) print "busbw of " bytes
            bound = $at["bound_us"]
            if (bound != "-" && differ($at["of"], bound / p50)) print "share of " bytes
            if (bound != "-" && bytes < 1048576) print "bound of " bytes
        }
        function differ(a, b) { return a - b > 0.01 + loose * b || b - a > 0.01 + loose * b }
        END { if (seen != sizes) print "sizes " seen ", not " sizes }' out.txt >wrong.txt
    [ ! -s wrong.txt ] || fail "$(cat wrong.txt out.txt)"
}

# has WORD: a line of out.txt
has() {
    checks=$((checks + 1))
    grep -q -- "$1" out.txt || fail "no $1 in $(cat out.txt)"
}

if [ "${2:-}" = cuda ]; then
    status=0
    "$bin/ddprun" --nproc-per-node 2 "$bin/bench_allreduce" --device cuda --iterations 3 --min-bytes 4 \
        --max-bytes 40000 --factor 100 >out.txt 2>err.txt </dev/null || status=$?
    [ $status != 77 ] || { cat err.txt && exit 77; }
    [ $status = 0 ] || fail "$(cat err.txt)"
    has 'world=2 ranks=processes backend=nccl'
    table 2 "4 400 40000"
    tally allreduce
    exit
fi

for ranks in --processes --threads; do
    run "$ranks" "$bin/bench_allreduce" $ranks --iterations 5 --min-bytes 4 --max-bytes 1048576 --factor 64
    has "world=2 ranks=${ranks#--} backend=shm"
    has '^# cache line .* round_trip_us_p50=[0-9.]* round_trip_us_min=[0-9.]*$'
    table 2 "4 256 16384 1048576"
    has '^ *1048576 .* [0-9.]* *[0-9.]* *0$'
done
run "three ranks" "$bin/bench_allreduce" --world 3 --iterations 3 --min-bytes 52 --max-bytes 1100000 --factor 100
table 3 "52 5200 520000 1100000"
run "one rank" "$bin/bench_allreduce" --world 1 --iterations 3 --min-bytes 4 --max-bytes 4
table 1 4
run "a launcher's" "$bin/ddprun" --nproc-per-node 3 "$bin/bench_allreduce" --iterations 3 --max-bytes 4096
has 'world=3 ranks=processes backend=shm'
table 3 "4 16 64 256 1024 4096"

refuse 2 'exclude each other' "$bin/bench_allreduce" --threads --processes
refuse 2 '--min-bytes 64 is more than' "$bin/bench_allreduce" --min-bytes 64 --max-bytes 16
refuse 2 'start the ranks with ddprun' "$bin/bench_allreduce" --device cuda
refuse 2 '--factor' "$bin/bench_allreduce" --factor 1
tally allreduce
