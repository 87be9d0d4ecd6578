#!/usr/bin/env bash
# scale.sh: what DP's and DDP's step would take on 1 to 4,096 devices like this machine's, by the model and by SimGrid.
#
#   bench/model/scale.sh [--out DIR] [--profile FILE] [--devices LIST] [--bin DIR] [--install] [--resume]
#
# Takes a profile of one device here (bench_profile; --profile FILE: that one) and works out each step for an all-reduce
# by ring, tree and hierarchical rings, on a network of one level (10 Gbit/s and 10 us for every device) and of two
# (nodes of 8 with 200 Gbit/s and 3 us inside), with and without one device that computes 1.5 times as long. Where
# libsimgrid is, each step is simulated message by message, too, but for those of more messages than minutes allow.
# Writes scale.csv, scale.svg and section.html, which bench/compare.sh's report takes in, to DIR (bench/out-scale).
# --resume continues an interrupted call.
set -euo pipefail
export LC_ALL=C
here=$PWD
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
cd "$root"
source bench/setup.sh
for part in options results runs section; do
    # shellcheck source=/dev/null
    source "bench/compare/$part.sh"
done

usage() {
    sed -n '2,11s/^# \{0,1\}//p' bench/model/scale.sh
}

out=bench/out-scale profile= devices=1,2,4,8,16,32,64,128,256,512,1024,2048,4096 bin= install=0 resume=0
declare -A flags=([--install]=install [--resume]=resume) values=([--devices]=devices)
declare -A paths=([--out]=out [--profile]=profile [--bin]=bin)
read_options bench/model/scale.sh "$@"
[[ $devices =~ ^[1-9][0-9]{0,5}(,[1-9][0-9]{0,5})*$ ]] || fail_usage "--devices ${devices:0:80}: expected numbers with commas"
[[ -z $profile || (-f $profile && -r $profile) ]] || fail_usage "--profile $profile: cannot be read"
need_programs bench_profile bench_scale
claim_results
[[ -n $bin ]] || {
    # shellcheck disable=SC2046 # who may not install works without SimGrid
    setup_require "$install" build $([[ $(id -u) != 0 && $install != 1 ]] || echo scale) 9<&-
    setup_build "$root" build bench_profile bench_scale 9<&-
    bin=$root/build/bin
}
open_section scale.csv

if [[ -z $profile ]]; then
    profile=$out/runs/profile/profile.json
    run_once profile taskset -c 0 "$bin/bench_profile" --rows 64 --rounds 60 --save "$profile" || exit 1
fi

# Does this build have SimGrid? Only 77 says that it has none.
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
begun=$SECONDS done=0
for straggler in 1 1.5; do
    for one in $cases; do
        say_progress $done 8 "${one#*-}, ${one%%-*} level(s), slowest device $straggler times as long"
        inside="--inside-gbit 10 --inside-latency-us 10"
        [[ $one != 2-* ]] || inside="--inside-gbit 200 --inside-latency-us 3"
        [[ $one != *-hierarchical ]] || inside="$inside --node-size 8"
        # shellcheck disable=SC2086 # options are words
        run_once "$one-$straggler" "$bin/bench_scale" --profile "$profile" --devices "$devices" --rows 64 \
            --gbit 10 --latency-us 10 --bucket-cap-mb 1 --algorithm "${one#*-}" $inside --straggler "$straggler" \
            $simulate || exit 1
        done=$((done + 1))
    done
done

# DP knows no algorithm, and its step is the same on both networks, because device 0's link is what it waits for.
echo "levels,algorithm,straggler,devices,strategy,step_ms,efficiency,simulated_ms" >"$out/scale.csv"
for straggler in 1 1.5; do
    for one in $cases; do
        awk -F, -v OFS=, -v levels="${one%%-*}" -v algorithm="${one#*-}" -v straggler="$straggler" '
            /^devices,/ { for (i = 1; i <= NF; i++) at[$i] = i; next }
            $2 == "ddp" || ($2 == "dp" && levels algorithm == "1ring") {
                print levels, $2 == "dp" ? "none" : algorithm, straggler, $1, $2, $at["step"], $at["efficiency"],
                    "simulated" in at ? $at["simulated"] : "not simulated" }' "$out/runs/$one-$straggler/output.txt"
    done
done >>"$out/scale.csv"

# plots/scale-N.csv: for each number of devices a column for each line, and SimGrid's beside it.
panel() { # STRAGGLER
    awk -F, -v straggler="$1" '
        BEGIN { n = split("dp ring tree hierarchical two", line, " ") }
        $3 != straggler { next }
        {
            name = $5 == "dp" ? "dp" : $1 == 2 ? "two" : $2
            if (!(($4) in seen)) { seen[$4] = 1; device[++devices] = $4 }
            step[$4, name] = $6
            simulated[$4, name] = $8 == "not simulated" ? "NaN" : $8
        }
        END {
            printf "devices"
            for (i = 1; i <= n; i++) printf ",%s,%s_simulated", line[i], line[i]
            for (d = 1; d <= devices; d++) {
                printf "\n%d", device[d]
                for (i = 1; i <= n; i++) printf ",%s,%s", step[device[d], line[i]], simulated[device[d], line[i]]
            }
            print ""
        }' "$out/scale.csv"
}
panel 1 >"$out/plots/scale-1.csv"
panel 1.5 >"$out/plots/scale-2.csv"

# The lines that SimGrid has points of, in both panels: simulated = "ring tree".
awk -F, '
    FNR == 1 { panel++; for (i = 1; i <= NF; i++) name[i] = $i; next }
    { for (i = 3; i <= NF; i += 2) if ($i != "NaN" && $i != "" && !had[panel, i]++ && ++panels[i] == 2) names = names " " name[i - 1] }
    END { printf "simulated = \"%s\"\n", substr(names, 2) }' "$out"/plots/scale-[12].csv >"$out/plots/settings.gp"

# The sentence under the figure: the steps of the largest number of devices, and where the model and SimGrid part.
sentence() {
    awk -F, '
        NR == 1 { next }
        { if ($4 > most) most = $4 }
        $3 == 1 {
            name = $5 == "dp" ? "dp" : $1 == 2 ? "two" : $2
            step[name, $4] = $6
            if ($7 >= 0.5 && $4 > half[name]) half[name] = $4
        }
        $8 != "not simulated" { off = $6 / $8 > 1 ? $6 / $8 - 1 : 1 - $6 / $8; if (off > far) far = off; n++ }
        END {
            printf "On %d devices a step takes DP %.0f ms, and DDP %.1f by a ring, %.1f by a tree, %.1f by rings of rings, and %.1f with fast nodes of 8; ", \
                most, step["dp", most], step["ring", most], step["tree", most], step["hierarchical", most], step["two", most]
            printf "at least half as fast as alone is a device of DP among up to %d, of DDP among up to %d, %d, %d and %d", \
                half["dp"], half["ring"], half["tree"], half["hierarchical"], half["two"]
            if (n) printf "; SimGrid simulates %d of these steps and the algebra is within %.2f %% of it", n, int(1e4 * far + 1) / 100
            print "."
        }' "$out/scale.csv"
}

table() { # STRAGGLER
    echo "| devices | DP, ms | ring, ms | tree, ms | rings of rings, ms | two levels, ms | simulated |"
    echo "|---:|---:|---:|---:|---:|---:|---:|"
    awk -F, 'NR > 1 { n = 0; for (i = 3; i <= NF; i += 2) n += $i != "NaN"
        printf "| %d | %.1f | %.1f | %.1f | %.1f | %.1f | %d of 5 |\n", $1, $2, $4, $6, $8, $10, n }' "$1"
}

status=0
{
    echo "## DP and DDP on up to $(tr , '\n' <<<"$devices" | sort -n | tail -n 1) devices"
    echo
    sentence
    [[ -z $without ]] || echo "$without"
    echo
    draw_section scale "$(sentence)" || status=1
    echo
    echo "These steps are computed, not measured: from one device of this machine by the algebra of bench/model/README.md, and"
    echo "message by message with SimGrid (rings in the figure). Every device has a link of 10 Gbit/s and 10 us; *two levels* have"
    echo "200 Gbit/s and 3 us inside nodes of 8. Not simulated are steps of more than five million messages, as those of large rings."
    for straggler in 1 2; do
        echo
        echo "### $([[ $straggler == 1 ]] && echo "All devices are equally fast" || echo "One device computes 1.5 times as long")"
        echo
        table "$out/plots/scale-$straggler.csv"
    done
    echo
    machine_facts "Profile: $(sed -n 's/.*"name": *"\([^"]*\)".*/\1/p' "$profile"), 64 rows a device, a bucket cap of 1 MiB" "Command: \`$asked\`"
} >"$out/section.md"
write_section scale
sentence | fold -s -w 79
[[ -z $without ]] || echo "$without"
setup_say "the numbers: $out/scale.csv; the section for the report: $out/section.html ($((SECONDS - begun)) s)"
exit $status
