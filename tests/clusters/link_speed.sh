#!/bin/sh
# link_speed.sh BIN_DIR MPI [GBIT]: a measurement, not a test: two hosts with a cable of GBIT (1) Gbit/s. It measures an
# all-reduce of 25 MiB with one and with two ranks on each host, which should take at most 1.25 times its bytes /
# bandwidth (210 ms at 1 Gbit/s); and, with one rank each, the part of min(backward, communication) that a training step
# overlaps, which should be at least 95 %, whichever of the two is shorter: backward takes two thirds of the
# communication in one series, and one and a half times as long in the next. The network has 32 equal layers, so that
# the first and the last bucket, which cannot overlap, are small.
#
# Sending through TCP uses CPU time. On the core of a computing rank it makes computation longer by the same amount,
# which no overlap can avoid. So in both series one core computes for the two hosts in turns, and another one sends and
# receives. The case of one core per host for everything is measured as well, and printed without a limit: the step
# waits for nothing there, but its backward takes longer.
#
# Disturbed repetitions (quiet.sh) do not count and are repeated. A triple is a job that sends nothing, one that
# communicates after backward (whose communication time is used), and one that overlaps both. Two jobs on one core can
# differ by 5 % in all their computation: the ratio of their forward times, which no communication affects, corrects the
# first job's backward time. Status 0: all limits hold; 1: one does not; 77: undecided, because the machine was
# disturbed too often.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../programs/checks.sh"
. "$here/mpi.sh"
[ "$mpi" = openmpi ] || skip "the recipe is Open MPI's"
. "$here/hosts.sh"
. "$here/quiet.sh"
gbit=${3-1}
limit=300
export OPENBLAS_NUM_THREADS=1

# measured NP COMMAND...: runs a job with NP ranks on each host; its failure ends this script
measured() {
    across "$@" >out.txt 2>err.txt </dev/null || { cat out.txt err.txt >&2 && exit 1; }
}

# all_reduce NP
all_reduce() {
    measured "$1" "$bin/bench_allreduce" --backend mpi --min-bytes 26214400 --max-bytes 26214400 --iterations 5
    awk '$1 == "bytes" { for (i = 1; i <= NF; i++) at[$i] = i } $1 == 26214400 { print $at["p50_us"] / 1e3 }' out.txt
}

# train CORES OPTION...: a job of CORES.sh, whose steps are in job/steps.csv
batch=1600
layers=440$(printf ',440%.0s' $(seq 31))
train() {
    cores=$1
    shift
    rm -rf job
    measured 1 "$work/$cores.sh" "$bin/train_ddp" --backend mpi --sampler blocked --model mlp --hidden "$layers" \
        --bucket-cap-mb 0.5 --global-batch "$batch" --data synthetic:1x4x4:10@64000 --steps 10 --no-eval --log-every 1 \
        --out "$work/job" "$@"
}
# Runs a rank. The main thread computes; after the first steps all threads exist. If a core is not available, the job
# fails: threads that share a core would give other figures.
cat >apart.sh <<'APART'
#!/bin/sh
set -e
"$@" &
tries=0
until [ -n "$(sed -n 3p "${0%/*}/job/steps.csv" 2>/dev/null)" ] || [ $tries = 200 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
for thread in /proc/$!/task/*; do
    [ "${thread##*/}" = $! ] && core=0 || core=1
    taskset -p -c $core "${thread##*/}"
done >/dev/null
wait $!
APART
cat >one.sh <<'ONE'
#!/bin/sh
exec taskset -c "$OMPI_COMM_WORLD_RANK" "$@"
ONE
chmod +x apart.sh one.sh

# median COLUMN: over the job's last six steps, in ms
median() {
    awk -F, -v column="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == column) at = i; next }
        NR > 5 { print $at }' job/steps.csv | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
# triple CORES: prints "BACKWARD COMMUNICATION BOTH HIDDEN WAIT BESIDE": the times of each alone and of both overlapped,
# the overlapped percentage of the shorter one, the wait after backward, and backward's time during communication
triple() {
    train "$1" --comm-hook noop
    forward=$(median forward_ms) backward=$(median backward_ms)
    train "$1" --no-overlap
    communication=$(median exposed_ms)
    train "$1"
    wait=$(median exposed_ms) beside=$(median backward_ms)
    echo "$forward $backward $communication $(median forward_ms) $wait $beside" |
        awk '{ print $2 * $4 / $1, $3, $5 + $6 }' | hidden | awk -v rest="$wait $beside" '{ print $0, rest }'
}
# overlap CORES RATIO: a series of triples in which backward takes RATIO times as long as the communication
overlap() {
    train "$1" --comm-hook noop
    backward=$(median backward_ms)
    train "$1" --no-overlap
    batch=$(echo "$backward $(median exposed_ms)" |
        awk -v batch="$batch" -v ratio="$2" '{ print 2 * int(ratio * $2 / $1 * batch / 2) }')
    repeat "overlap-$1-$2" 5 12 triple "$1"
    verdict "overlap-$1-$2" '"a step of '"$batch"' rows: backward %.0f ms, communication %.0f ms, both %.0f ms: %.1f %% of the shorter is hidden (%.1f ms waited when backward was over; it takes %.0f ms beside the messages)", $1, $2, $3, $4, $5, $6' \
        "$3"
}

# verdict NAME FORMAT PROGRAM: FORMAT prints the medians; the awk PROGRAM tells whether the limit holds; 1: no limit
verdict() {
    found=$(medians "$1")
    printf '%s: ' "$1"
    if [ -z "$found" ]; then
        echo "undecided, the machine was too seldom quiet"
        undecided=1
    elif echo "$found" | awk -v gbit="$gbit" "{ bound = 26214400 * 8 / gbit / 1e6; printf $2; exit !($3) }"; then
        [ "$3" = 1 ] && echo ": no limit" || echo ": holds"
    else
        echo ": does NOT hold"
        failures=$((failures + 1))
    fi
}

hosts_open "${gbit}gbit"
undecided=0
# shellcheck disable=SC2016 # fields of awk
for ranks in 1 2; do
    repeat all-reduce-$ranks 5 20 all_reduce $ranks
    verdict all-reduce-$ranks '"25 MiB at %g Gbit/s: %.0f ms, %.2f times the bound", gbit, $1, $1 / bound' '$1 <= 1.25 * bound'
done
if [ "$(nproc)" -gt 1 ]; then
    # shellcheck disable=SC2016
    overlap apart 0.67 '$4 >= 95'
    # shellcheck disable=SC2016
    overlap apart 1.5 '$4 >= 95'
    overlap one 1.5 1
else
    echo "overlap: undecided, it needs a core that computes and one that carries messages"
    undecided=1
fi
[ $failures = 0 ] || exit 1
[ $undecided = 0 ] || exit 77
