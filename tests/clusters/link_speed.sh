#!/bin/sh
# link_speed.sh BIN_DIR MPI [GBIT]: no test but a measurement: two hosts and a cable of GBIT (1) Gbit/s between them.
# How long an all-reduce of 25 MiB takes with one rank on each host, and with two, which should be at most 1.25
# times what its bytes take (210 ms at 1 Gbit/s); and, with one rank each, how much of min(compute, communication)
# of a training step is hidden, which should be at least 95 %. The network has 32 equal layers, so that the last
# bucket, which nothing can hide, is small; and a batch with which the backward pass takes half as long again as
# the communication, for nothing can hide behind what is over. Each host keeps to its own half of the cores.
#
# Repetitions that were disturbed (quiet.sh) do not count and are made again. A triple is a job that sends nothing, one
# that communicates after the backward pass, whose time to communicate is taken, and one that does both at a time.
# What is not hidden has two parts, which are printed: the wait for the last bucket, and what the backward pass takes
# longer because this host's cores also carry the messages through TCP. A host of one core pays the second in full.
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

# train OPTION...: a job, whose steps are in job/steps.csv
batch=1600
layers=440$(printf ',440%.0s' $(seq 31))
train() {
    measured 1 "$bin/train_ddp" --backend mpi --sampler blocked --model mlp --hidden "$layers" --bucket-cap-mb 0.5 \
        --global-batch "$batch" --data synthetic:1x4x4:10@64000 --steps 8 --no-eval --log-every 1 \
        --out "$work/job" "$@"
}
# median COLUMN: of that job's steps but the first two, in ms
median() {
    awk -F, -v column="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == column) at = i; next }
        NR > 3 { print $at }' job/steps.csv | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
triple() {
    train --comm-hook noop
    compute=$(median step_ms) backward=$(median backward_ms)
    train --no-overlap
    communication=$(median exposed_ms)
    train
    echo "$(echo "$compute $communication $(median step_ms)" | hidden) $(median exposed_ms) $backward $(median backward_ms)"
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

own_cores=1
hosts_open "${gbit}gbit"
undecided=0
train --comm-hook noop
backward=$(median backward_ms)
train --no-overlap
batch=$(echo "$backward $(median exposed_ms)" | awk -v batch="$batch" '{ print 2 * int(1.5 * $2 / $1 * batch / 2) }')
repeat all-reduce-1 5 20 all_reduce 1
repeat all-reduce-2 5 20 all_reduce 2
repeat overlap 5 12 triple
for series in all-reduce-1 all-reduce-2; do
    # shellcheck disable=SC2016 # awk's fields
    verdict $series '"25 MiB at %g Gbit/s: %.0f ms, %.2f times the bound", gbit, $1, $1 / bound' '$1 <= 1.25 * bound'
done
# shellcheck disable=SC2016
verdict overlap '"step of '"$batch"' rows: compute %.0f ms, communication %.0f ms, both %.0f ms: %.1f %% of the shorter is hidden (the last bucket is waited for %.1f ms, the backward pass takes %.0f ms beside it and %.0f alone)", $1, $2, $3, $4, $5, $7, $6' \
    '$4 >= 95'
[ $failures = 0 ] || exit 1
[ $undecided = 0 ] || exit 77
