#!/bin/sh
# link_speed.sh BIN_DIR MPI [GBIT]: no test but a measurement: two hosts and a cable of GBIT (1) Gbit/s between them.
# How long an all-reduce of 25 MiB takes with one rank on each host, and with two, which should be at most 1.25
# times what its bytes take (210 ms at 1 Gbit/s); and, with one rank each, how much of min(compute, communication)
# of a training step is hidden, which should be at least 95 %. The network has 32 equal layers, so that the last
# bucket, which nothing can hide, is small.
#
# Repetitions that were disturbed (quiet.sh) do not count and are made again. A triple is a job that sends nothing, one
# that communicates after the backward pass, whose time to communicate is taken, and one that does both at a time.
# Status 0: both hold. 1: one does not. 77: undecided, because the machine was too seldom quiet.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../programs/checks.sh"
. "$here/mpi.sh"
[ "$mpi" = openmpi ] || skip "the recipe is Open MPI's"
. "$here/hosts.sh"
. "$here/quiet.sh"
gbit=${3-1}
limit=300
export OPENBLAS_NUM_THREADS=1

# measured NP COMMAND...: a job with NP ranks on each host, whose failure is this script's
measured() {
    across "$@" >out.txt 2>err.txt </dev/null || { cat out.txt err.txt >&2 && exit 1; }
}

# all_reduce NP
all_reduce() {
    measured "$1" "$bin/bench_allreduce" --backend mpi --min-bytes 26214400 --max-bytes 26214400 --iterations 5
    awk '$1 == "bytes" { for (i = 1; i <= NF; i++) at[$i] = i } $1 == 26214400 { print $at["p50_us"] / 1e3 }' out.txt
}

# median COLUMN OPTION...: of the steps of a job but the first two, in ms
layers=440$(printf ',440%.0s' $(seq 31))
median() {
    column=$1
    shift
    measured 1 "$bin/train_ddp" --backend mpi --sampler blocked --model mlp --hidden "$layers" --bucket-cap-mb 0.5 \
        --global-batch "${batch:-1600}" --data synthetic:1x4x4:10@16000 --steps 8 --no-eval --log-every 1 \
        --out "$work/job" "$@"
    awk -F, -v column="$column" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == column) at = i; next }
        NR > 3 { print $at }' job/steps.csv | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
triple() {
    compute=$(median step_ms --comm-hook noop)
    communication=$(median exposed_ms --no-overlap)
    both=$(median step_ms)
    echo "$compute $communication $both" | hidden
}

# verdict NAME FORMAT PROGRAM: FORMAT prints the medians; PROGRAM, of awk, whether the bound holds
verdict() {
    found=$(medians "$1")
    printf '%s: ' "$1"
    if [ -z "$found" ]; then
        echo "undecided, the machine was too seldom quiet"
        undecided=1
    elif echo "$found" | awk -v gbit="$gbit" "{ bound = 26214400 * 8 / gbit / 1e6; printf $2; exit !($3) }"; then
        echo ": holds"
    else
        echo ": does NOT hold"
        failures=$((failures + 1))
    fi
}

hosts_open "${gbit}gbit"
undecided=0
repeat all-reduce-1 5 20 all_reduce 1
repeat all-reduce-2 5 20 all_reduce 2
repeat overlap 5 12 triple
for series in all-reduce-1 all-reduce-2; do
    # shellcheck disable=SC2016 # awk's fields
    verdict $series '"25 MiB at %g Gbit/s: %.0f ms, %.2f times the bound", gbit, $1, $1 / bound' '$1 <= 1.25 * bound'
done
# shellcheck disable=SC2016
verdict overlap '"step: compute %.0f ms, communication %.0f ms, both %.0f ms: %.1f %% of the shorter is hidden", $1, $2, $3, $4' \
    '$4 >= 95'
[ $failures = 0 ] || exit 1
[ $undecided = 0 ] || exit 77
