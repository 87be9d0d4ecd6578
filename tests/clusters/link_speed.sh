#!/bin/sh
# link_speed.sh BIN_DIR MPI [RATE]: no test but a measurement, for a quiet machine: two hosts with one rank each
# and a cable of RATE (1gbit) between them. Prints how long an all-reduce of 25 MiB takes, beside the 210 ms
# that its bytes take at 1 Gbit/s, and how much of min(compute, communication) of a training step is hidden:
# a step that sends nothing computes; one without overlap does both in turns; one with overlap at a time.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../programs/checks.sh"
. "$here/mpi.sh"
[ "$mpi" = openmpi ] || skip "the recipe is Open MPI's"
. "$here/hosts.sh"
rate=${3-1gbit}
limit=300
export OPENBLAS_NUM_THREADS=1

hosts_open "$rate"
run "all-reduce" across 1 "$bin/bench_allreduce" --backend mpi --min-bytes 26214400 --max-bytes 26214400 \
    --iterations 15
awk '$1 == 26214400 { printf "all-reduce of 25 MiB at '"$rate"': p50 %.0f ms, min %.0f ms\n", $4 / 1e3, $3 / 1e3 }' out.txt

# step NAME OPTION...: the median step in ms
step() {
    name=$1
    shift
    run "$name" across 1 "$bin/train_ddp" --backend mpi --sampler blocked --model mlp --hidden 2048,2048,1024 \
        --global-batch "${batch:-400}" --data synthetic:1x28x28:10@8000 --steps 20 --no-eval --out "$work/$name" "$@"
    sed -n 's/^ *"step_ms_p50": *\([0-9.]*\).*/\1/p' "$name/summary.json"
}
compute=$(step compute --comm-hook noop)
turns=$(step turns --no-overlap)
both=$(step both)
echo "$compute $turns $both" | awk '{ c = $2 - $1; least = c < $1 ? c : $1
    printf "step: compute %.0f ms, communication %.0f ms, in turns %.0f ms, together %.0f ms: ", $1, c, $2, $3
    printf "%.0f %% of the smaller is hidden\n", 100 * ($2 - $3) / least }'
tally link_speed
