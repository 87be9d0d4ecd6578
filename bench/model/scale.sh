#!/usr/bin/env bash
# scale.sh: predicts DP's, DDP's and FSDP's step on 1 to 4,096 devices like this machine's, by the model and by SimGrid.
#
#   bench/model/scale.sh [--profile FILE] [--devices LIST]
#
# Measures a profile of one device (bench_profile; --profile FILE reads one) and computes each step for an all-reduce
# by ring, tree and hierarchical rings, on a network of one level (10 Gbit/s and 10 us for every device) and of two
# (nodes of 8 with 200 Gbit/s and 3 us inside), with and without one device that computes 1.5 times as long. Where
# libsimgrid is installed, each step is also simulated message by message, unless its messages would take minutes.
# Writes scale.csv, scale.svg and section.html, which bench/compare.sh's report takes in, to DIR (bench/out-scale).
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../compare/begin.sh"

out=bench/out-scale profile= devices=1,2,4,8,16,32,64,128,256,512,1024,2048,4096
read_options bench/model/scale.sh "$@"
[[ $devices =~ ^[1-9][0-9]{0,5}(,[1-9][0-9]{0,5})*$ ]] || fail_usage "--devices ${devices:0:80}: expected numbers with commas"
[[ -z $profile || (-f $profile && -r $profile) ]] || fail_usage "--profile $profile: cannot be read"
[[ $(id -u) != 0 && $install != 1 ]] || groups="build scale" # without these rights the command runs without SimGrid
get_ready bench_profile bench_scale
open_section scale.csv

if [[ -z $profile ]]; then
    profile=$out/runs/profile/profile.json
    run_once profile taskset -c 0 "$bin/bench_profile" --rows 64 --rounds 60 --save "$profile"
fi

# Checks whether this build has SimGrid; only status 77 means that it does not.
simulate=--simulate without=
run_status=0
"$bin/bench_scale" --profile "$profile" --devices 1 --simulate >/dev/null 2>"$out/plots/simgrid.log" || run_status=$?
case $run_status in
0) ;;
77) simulate= without="Not simulated: $(sed 's/^error: //' "$out/plots/simgrid.log")." ;;
*) cat "$out/plots/simgrid.log" >&2 && exit 1 ;;
esac

# A case: levels of the network, algorithm, straggler.
cases="1-ring 1-tree 1-hierarchical 2-hierarchical"

# scale CASE STRAGGLER: computes the steps of one case
scale() {
    local inside="--inside-gbit 10 --inside-latency-us 10"
    [[ $1 != 2-* ]] || inside="--inside-gbit 200 --inside-latency-us 3"
    [[ $1 != *-hierarchical ]] || inside="$inside --node-size 8"
    # shellcheck disable=SC2086 # options are words
    run_once "$1-$2" "$bin/bench_scale" --profile "$profile" --devices "$devices" --rows 64 --gbit 10 --latency-us 10 \
        --bucket-cap-mb 1 --algorithm "${1#*-}" $inside --straggler "$2" $simulate
}

scale_all() {
    local one straggler
    for straggler in 1 1.5; do
        for one in $cases; do
            begin_section "${one#*-}, ${one%%-*} level$([[ $one == 1-* ]] || echo s), slowest device $straggler times as long"
            scale "$one" $straggler
        done
    done
}
make_all scale_all

write_facts "cases $cases" "stragglers 1 1.5" "without $without" -- \
    "Profile: $(sed -n 's/.*"name": *"\([^"]*\)".*/\1/p' "$profile"), 64 rows a device, a bucket cap of 1 MiB"
write_report scale
