#!/usr/bin/env bash
# real.sh: the model of a step beside real steps of train_dp and train_ddp on the emulated link.
#
#   bench/model/real.sh [--out DIR] [--rounds N] [--links "GBIT,US ..."] [--bin DIR] [--resume]
#
# Two devices, mlp with eight hidden layers of 512, 64 rows a device, a bucket cap of 1 MiB. The profile is taken
# with a neighbour that computes on the other core, as the ranks will have one. Rounds are interleaved, and medians
# are compared. The algebra knows no devices that share a memory: what that costs, and what the loop around the step
# costs, is calibrated by one number a strategy, its step without any link. The steps over links are then predicted.
# Prints a table and writes real.csv, profile.json and section.html, which bench/compare.sh's report
# takes in, to DIR (bench/out-real). --resume goes on with a call that was interrupted. Nothing fails by time.
set -euo pipefail
export LC_ALL=C
here=$PWD
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
source bench/setup.sh
for part in runs options section; do
    # shellcheck source=/dev/null
    source "bench/compare/$part.sh"
done

usage() {
    sed -n '2,11s/^# \{0,1\}//p' bench/model/real.sh
}

out=bench/out-real rounds=5 links="100,5 10,10 2.5,25 1,50" bin=$root/build/bin steps=40 resume=0
declare -A flags=([--resume]=resume) values=([--rounds]=rounds [--links]=links [--steps]=steps)
declare -A paths=([--out]=out [--bin]=bin)
read_options bench/model/real.sh "$@"
[ -x "$bin/bench_scale" ] || { echo "error: there is no $bin/bench_scale; build the project first" >&2 && exit 2; }
open_results real.csv
hidden=512,512,512,512,512,512,512,512
common="--device cpu --model mlp --hidden $hidden --global-batch 128 --steps $steps --no-eval"

# shellcheck disable=SC2016 # the inner shell's
run_once profile env PROGRAM="$bin/bench_profile" sh -c '
    taskset -c 1 "$PROGRAM" "$@" --rounds 150 >/dev/null 2>&1 &
    taskset -c 0 "$PROGRAM" "$@" --rounds 60 --save "$0" && wait' \
    "$out/runs/profile/profile.json" --hidden $hidden --rows 64 || exit 1
cat "$out/runs/profile/output.txt"
cp "$out/runs/profile/profile.json" "$out/profile.json"

# real STRATEGY LINK ROUND: one run, and a line of real.txt: its median step in milliseconds, the first steps left
# out. LINK may be none.
real() {
    local name=$1-$2-$3 link_option="--link $2"
    [ "$2" != none ] || link_option=
    # shellcheck disable=SC2086 # options are words
    set -- "$1" "$2" $common $link_option --log-every 1 --out "$out/runs/$name"
    case $1 in
    dp) run_once "$name" "$bin/train_dp" --devices 2 --bind cores "${@:3}" ;;
    ddp) run_once "$name" "$bin/ddprun" --nproc-per-node 2 --bind cores "$bin/train_ddp" --bucket-cap-mb 1 "${@:3}" ;;
    esac || exit 1
    csv 'of("step") >= 3 { print of("step_ms") }' "$out/runs/$name/steps.csv" | sort -n |
        awk -v what="$2 $1" '{ v[NR] = $1 } END { print what, v[int((NR + 1) / 2)] }' >>"$out/real.txt"
}

rm -f "$out/real.txt" "$out/sharing.txt"
for ((round = 1; round <= rounds; round++)); do
    for link in none $links; do
        for strategy in dp ddp; do
            real $strategy "$link" "$round"
        done
    done
done

# median STRATEGY LINK: prints the median over the rounds, in milliseconds
median() {
    awk -v s="$1" -v l="$2" '$1 == l && $2 == s { print $3 }' "$out/real.txt" | sort -n |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# model STRATEGY GBIT LATENCY_US: prints how long a step takes by the algebra, in milliseconds
model() {
    "$bin/bench_scale" --profile "$out/profile.json" --devices 2 --bucket-cap-mb 1 --gbit "$2" --latency-us "$3" |
        awk -F, -v s="$1" '/^devices,/ { for (i = 1; i <= NF; i++) if ($i == "step") at = i } $1 == 2 && $2 == s { print $at }'
}

echo "link,strategy,model_ms,real_ms,real_over_model" >"$out/real.csv"
for strategy in dp ddp; do
    sharing=$(echo "$(median $strategy none) $(model $strategy 1e6 0)" | awk '{ printf "%.3f", $1 - $2 }')
    echo "$strategy: one machine's memory and the loop cost $sharing ms more than the algebra says, without any link"
    echo "$strategy $sharing" >>"$out/sharing.txt"
    for link in $links; do
        echo "$link $(model $strategy "${link%,*}" "${link#*,}") $(median $strategy "$link")" |
            awk -v s="$strategy" -v more="$sharing" '{ sub(",", " Gbit/s + ", $1); m = $2 + more
                printf "%s us,%s,%.2f,%.2f,%.3f\n", $1, s, m, $3, $3 / m }'
    done >>"$out/real.csv"
done
awk -F, '{ printf "%-22s %-9s %10s %10s %16s\n", $1, $2, $3, $4, $5 }' "$out/real.csv"

{
    echo "## The model beside real steps"
    echo
    awk -F, 'NR == 1 { next }
        { off = $5 > 1 ? $5 - 1 : 1 - $5; if (off > most) { most = off; where = toupper($2) " over " $1 } n++ }
        END { printf "Two devices on emulated links: of %d median steps the one farthest from the model is %s, %.0f %% off.\n", n, where, 100 * most }' "$out/real.csv"
    awk '{ more[$1] = $2 } END { printf "What devices that share one memory cost, and the loop around the step, is calibrated without any link: %.2f ms for DP, %.2f ms for DDP.\n", more["dp"], more["ddp"] }' "$out/sharing.txt"
    echo
    awk -F, 'NR == 1 { print "| link | strategy | model, ms | real, ms | real over model |"; print "|---|---|---|---|---|"; next }
        { printf "| %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5 }' "$out/real.csv"
} >"$out/section.md"
write_section real
