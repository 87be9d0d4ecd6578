#!/bin/sh
# allreduce.sh BIN_DIR [cuda|MPI]: bench_allreduce with ranks as processes, as threads and under a launcher (with cuda
# only the last, over NCCL; with the name of the build's MPI implementation, over MPI): every requested size is
# measured, every element is checked, and the table's columns and the lines below it are consistent. Times are not
# judged.
. "$(dirname "$0")/checks.sh"
unset RANK WORLD_SIZE DDPRUN_TOKEN

# table WORLD "BYTES...": checks the table in out.txt.
table() {
    checks=$((checks + 2))
    wide=$(awk 'length($0) > 80' out.txt)
    [ -z "$wide" ] || fail "wider than 80 columns: $wide"
    awk -v world="$1" -v sizes="$2" -v loose=0.02 '
        /^#/ { next }
        $1 == "bytes" { for (i = 1; i <= NF; i++) at[$i] = i; next }
        {
            bytes = $at["bytes"]
            seen = seen (seen == "" ? "" : " ") bytes
            if ($at["wrong"] != "0") print "wrong elements of " bytes
            p50 = $at["p50_us"]
            if (!(p50 > 0) || $at["min_us"] > p50 || p50 > $at["p99_us"]) print "times of " bytes
            if ($at["min_us"] < p50 && p50 < $at["p99_us"]) apart = 1
            if (differ($at["algbw"], bytes / p50 / 1000)) print "algbw of " bytes
            if (world == 1 && $at["busbw"] != "-") print "busbw of one rank"
            if (world > 1 && differ($at["busbw"], $at["algbw"] * 2 * (world - 1) / world)) print "busbw of " bytes
            bound = $at["bound_us"]
            if (bound != "-" && differ($at["of"], bound / p50)) print "share of " bytes
            if (bound != "-" && bytes < 1048576) print "bound of " bytes
        }
        function differ(a, b) { return a - b > 0.01 + loose * b || b - a > 0.01 + loose * b }
        END {
            if (seen != sizes) print "sizes " seen ", not " sizes
            if (bytes >= 1000000 && !apart) print "the median is the fastest or the slowest of every size"
        }' out.txt >wrong.txt
    [ ! -s wrong.txt ] || fail "$(cat wrong.txt out.txt)"
}

# has WORD: checks that out.txt has a line with the word.
has() {
    checks=$((checks + 1))
    grep -q -- "$1" out.txt || fail "no $1 in $(cat out.txt)"
}

# ratios "SMALL" "LARGE": checks that the lines below the table, which compare messages of these sizes ("": none), agree
# with the table and the round trip.
ratios() {
    checks=$((checks + 1))
    awk -v small="$1" -v large="$2" '
        function size(bytes) {
            return bytes % 1048576 == 0 ? bytes / 1048576 " MiB" : bytes % 1024 == 0 ? bytes / 1024 " KiB" : bytes " B"
        }
        $1 == "bytes" { for (i = 1; i <= NF; i++) at[$i] = i; next }
        !/^#/ { p50[$1] = $at["p50_us"]; share[$1] = $at["of"]; next }
        /^# round trip of a cache line between two cores: p50_us=[0-9.]+ min_us=[0-9.]+$/ { trip = substr($11, 8) + 0 }
        / takes [0-9.]+ round trips/ {
            found = split(substr($0, 3), said, ", ")
            if (found != split(small, sizes, " ")) print "not about " small ": " $0
            for (i = 1; i <= found; i++) {
                split(said[i], word, " ")
                wanted = p50[sizes[i]] / trip
                if (word[1] " " word[2] != size(sizes[i]) || (word[4] - wanted) ^ 2 > (0.06 + 0.02 * wanted) ^ 2)
                    print said[i] ", not " wanted
            }
        }
        / of the bound; / {
            bounds++
            least = share[large]
            for (bytes in share) if (share[bytes] != "-" && share[bytes] < least) least = share[bytes]
            for (bytes in share) if (share[bytes] == least) which[size(bytes)]
            begins = "# " size(large) ": " share[large] " of the bound; the least of all sizes: " least ", of "
            if (index($0, begins) != 1 || !(substr($0, length(begins) + 1) in which)) print $0
        }
        END { if (!trip || !found == (small != "") || bounds != (large != "")) print "lines are missing" }' out.txt >wrong.txt
    [ ! -s wrong.txt ] || fail "$(cat wrong.txt out.txt)"
}

if [ "${2:-}" = cuda ]; then
    status=0
    "$bin/ddprun" --nproc-per-node 2 "$bin/bench_allreduce" --device cuda --iterations 3 --min-bytes 4 \
        --max-bytes 40000 --factor 100 >out.txt 2>err.txt </dev/null || status=$?
    [ $status != 77 ] || { cat err.txt && exit 77; }
    [ $status = 0 ] || fail "$(cat err.txt)"
    has 'world=2 ranks=processes backend=nccl'
    has '^# no round trip of a cache line: the buffers are in the memory of GPUs$'
    has '^# no memory bound: the buffers are in the memory of GPUs$'
    table 2 "4 400 40000"
    tally allreduce
    exit
fi

if [ $# = 2 ]; then
    . "$(dirname "$0")/../clusters/mpi.sh"
    run "through MPI" ranks 2 "$bin/bench_allreduce" --backend mpi --iterations 3 --max-bytes 4194304 --factor 1024
    has 'world=2 ranks=processes backend=mpi'
    table 2 "4 4096 4194304"
    [ "$(nproc)" = 1 ] || ratios "4 4096" 4194304
    run "in an order of its own" ranks 2 "$bin/bench_allreduce" --backend mpi --fast-sums --iterations 3 --max-bytes 4
    table 2 4
    tally allreduce
    exit
fi

for ranks in --processes --threads; do
    run "$ranks" "$bin/bench_allreduce" $ranks --iterations 5 --min-bytes 4 --max-bytes 4194304 --factor 1024
    has "world=2 ranks=${ranks#--} backend=shm"
    table 2 "4 4096 4194304"
    [ "$(nproc)" = 1 ] || ratios "4 4096" 4194304
done
run "large ones" "$bin/bench_allreduce" --iterations 5 --min-bytes 1048576 --max-bytes 4194304 --factor 2
table 2 "1048576 2097152 4194304"
[ "$(nproc)" = 1 ] || ratios "" 4194304
run "three ranks" "$bin/bench_allreduce" --world 3 --iterations 3 --min-bytes 52 --max-bytes 1100000 --factor 100
table 3 "52 5200 520000 1100000"
has '^ *1100000 .* [0-9][0-9.]* *[0-9.]* *0$'
run "one rank" "$bin/bench_allreduce" --world 1 --iterations 3 --min-bytes 4 --max-bytes 4
has '^# no round trip of a cache line: there is one rank$'
table 1 4
run "a launcher's" "$bin/ddprun" --nproc-per-node 3 "$bin/bench_allreduce" --iterations 3 --max-bytes 4194304 \
    --factor 1024
has 'world=3 ranks=processes backend=shm'
table 3 "4 4096 4194304"
[ "$(nproc)" = 1 ] || ratios "4 4096" 4194304
if command -v taskset >/dev/null; then
    core=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
    run "one core" taskset -c "$core" "$bin/bench_allreduce" --iterations 3 --max-bytes 4
    has '^# no round trip of a cache line: ranks 0 and 1 have not a core each$'
fi

refuse 2 'exclude each other' "$bin/bench_allreduce" --threads --processes
refuse 2 '--min-bytes 64 is more than' "$bin/bench_allreduce" --min-bytes 64 --max-bytes 16
refuse 2 'start the ranks with ddprun' "$bin/bench_allreduce" --device cuda
launched() { # LOCAL_RANK OPTION...: as rank LOCAL_RANK of its own launcher, to be refused before it meets others
    env RANK="$1" WORLD_SIZE=$(($1 + 1)) LOCAL_RANK="$1" LOCAL_WORLD_SIZE=$(($1 + 1)) MASTER_ADDR=127.0.0.1 MASTER_PORT=1 \
        "$bin/bench_allreduce" "$2" "$3" --max-bytes 4
}
refuse 77 'cuda:3' launched 3 --device cuda
case $(launched 0 --backend nccl 2>&1) in
*"backend nccl is not built in"*) ;;
*) refuse 2 'backend nccl is for GPUs' launched 0 --backend nccl ;;
esac
refuse 2 '--factor' "$bin/bench_allreduce" --factor 1
refuse 2 '--fast-sums is for --backend mpi' "$bin/bench_allreduce" --fast-sums
tally allreduce
