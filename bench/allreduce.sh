#!/usr/bin/env bash
# allreduce.sh: bench_allreduce from 4 B to 256 MiB and at DDP's default bucket, through shared memory and, where it is
# built and mpirun is there, through MPI; several times in turns, beside the memory bound and a cache line's round trip.
#
# Writes allreduce.csv, trips.csv, allreduce.svg, section.md and section.html, which bench/compare.sh's
# report brings in. The exit status is 0 only if every element of every sum was right; times are measured, not judged.
# The report's sentences about the numbers: bench/report/allreduce.py.
#
# usage: bench/allreduce.sh [options]
#   --quick        one round of a few sizes: tries the command, and measures no speed
#   --world N      number of ranks (default: 2)
#   --rounds N     how often each backend is measured (default: 3)
#   --patience SECONDS  how long disturbed runs are made once more (default: 60)
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/compare/begin.sh"

world=2 rounds=3 patience=60 out=bench/out-allreduce
read_options bench/allreduce.sh "$@"
need_number --world "$world" 2 "$(most_devices)"
get_ready ddprun bench_allreduce bench_probe
# One row for each sweep: its name, and the options with its sizes.
sweeps="sweep --factor 4
bucket --min-bytes 26214400 --max-bytes 26214400"
[[ $quick == 0 ]] || { kind=quick rounds=1 sweeps="sweep --factor 64 --max-bytes 4194304 --iterations 3"; }
unset RANK WORLD_SIZE

open_section {allreduce,trips}.csv

# sweep BACKEND ROUND: measures all sizes with one backend.
# shellcheck disable=SC2086 # options are words
sweep() {
    local name options backend=$1
    start_ranks "$world"
    while read -r name options; do
        timed_run "$backend-$name-$2" "${command[@]}" "$bin/bench_allreduce" --backend "$backend" $options
    done <<<"$sweeps"
}

# shellcheck disable=SC2086 # backends are words
sweep_all() { each_round sweep $backends; }

# Where MPI is missing, bench_allreduce names the cause in its first line of output.
find_mpi() {
    local why backend=mpi
    command -v mpirun >/dev/null || { echo "there is no mpirun here: MPI is left out" >&2 && return 1; }
    start_ranks "$world"
    why=$("${command[@]}" "$bin/bench_allreduce" --backend mpi --max-bytes 4 --iterations 1 2>&1 </dev/null 9<&-) && return
    echo "MPI is left out: $(grep -m 1 '^error: ' <<<"$why" || head -n 1 <<<"$why")" >&2
    return 1
}

backends=shm facts=()
! find_mpi || { backends="shm mpi" facts=("MPI: $(mpirun --version | head -n 1)"); }
make_all sweep_all
write_facts "quick $quick" "backends $backends" "sweeps $(cut -d ' ' -f 1 <<<"$sweeps" | paste -sd ' ' -)" "rounds $rounds" "world $world" -- "${facts[@]}"
write_report allreduce
