#!/usr/bin/env bash
# real.sh: compares the model of a step with real steps of train_dp, train_ddp and train_fsdp on the emulated link.
#
#   bench/model/real.sh [--rounds N] [--links "GBIT,US ..."] [--steps N] [--patience SECONDS]
#
# Two devices, mlp with eight hidden layers of 512, 64 rows a device, a bucket cap of 1 MiB. The profile is measured
# while another process computes on the other core, as in the runs with two ranks. Rounds are interleaved, and medians
# are compared; the model's parameters from steps of two devices: bench/report/real.py. A probe before and after each
# run shows whether it was disturbed; disturbed runs are repeated while there is time.
# Prints a table and writes real.csv, profile.json and section.html, which bench/compare.sh's report
# takes in, to DIR (bench/out-real). Nothing fails by time.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../compare/begin.sh"

out=bench/out-real rounds=5 links="100,5 10,10 2.5,25 1,50" steps=40 patience=120
read_options bench/model/real.sh "$@"
need_number --steps "$steps" 1 999999
for link in $links; do need_link --links "$link"; done
[[ -n ${links// /} ]] || fail_usage "--links: expected at least one"
get_ready train_dp train_ddp train_fsdp ddprun bench_scale bench_profile bench_probe
open_section real.csv profile.json
hidden=512,512,512,512,512,512,512,512
common="--device cpu --model mlp --hidden $hidden --global-batch 128 --steps $steps --no-eval --log-every 1"

# measure SERIES ROUND: makes one run between two probes. SERIES is STRATEGY-LINK; the link may be none, and the
# strategy noop, which is DDP without communication.
measure() {
    local strategy=${1%%-*} link=${1#*-}
    # shellcheck disable=SC2086 # options are words
    set -- "$1-$2" $common --out "$out/runs/$1-$2"
    [[ $link == none ]] || set -- "$@" --link "$link"
    start_ranks 2
    case $strategy in
    dp) command=("$bin/train_dp" --devices 2 --bind cores) ;;
    ddp) command+=("$bin/train_ddp" --bucket-cap-mb 1) ;;
    noop) command+=("$bin/train_ddp" --bucket-cap-mb 1 --comm-hook noop) ;;
    fsdp) command+=("$bin/train_fsdp") ;;
    esac
    timed_run "$1" "${command[@]}" "${@:2}"
}

rest=1000000,500 # Gbit/s, us: a message takes half a millisecond, independent of its bytes
series="dp-none ddp-none fsdp-none noop-none dp-$rest"
for link in $links; do series="$series dp-$link ddp-$link fsdp-$link"; done

# shellcheck disable=SC2086 # series are words
measure_all() { each_round measure $series; }

# The profile, with a neighbour on the other core.
# shellcheck disable=SC2016 # the inner shell's
timed_run profile env PROGRAM="$bin/bench_profile" sh -c '
    taskset -c 1 "$PROGRAM" "$@" --rounds 150 >/dev/null 2>&1 &
    taskset -c 0 "$PROGRAM" "$@" --rounds 60 --save "$0" && wait' \
    "$out/runs/profile/profile.json" --hidden $hidden --rows 64
make_all measure_all
cp "$out/runs/profile/profile.json" "$out/profile.json"
write_facts "rounds $rounds" "links $links" "rest $rest" -- \
    "BLAS: $(json blas "$(a_record)")"
write_report real "$bin"
