#!/usr/bin/env bash
# real.sh: the model of a step beside real steps of train_dp and train_ddp on the emulated link.
#
#   bench/model/real.sh [--out DIR] [--rounds N] [--links "GBIT,US ..."] [--bin DIR] [--resume]
#
# Two devices, mlp with eight hidden layers of 512, 64 rows a device, a bucket cap of 1 MiB. The profile is taken
# with a neighbour that computes on the other core, as the ranks will have one. Rounds are interleaved, and medians
# are compared. Three numbers are measured without a link, because the algebra of one device does not know them: how
# many times as long two devices compute that do not communicate (--comm-hook noop), what DDP's sums add to that, and
# what DP's copies add. A fourth is DP's alone, whose devices sleep while device 0 sends: how many times as long their
# forward and backward take then, on a link where a message takes half a millisecond and its bytes nothing. The steps over
# links are then predicted, each strategy's by two numbers. A probe before and after each run tells which were
# disturbed: these are made once more while there is time, and what stays disturbed is in no sentence.
# Prints a table and writes real.csv, profile.json and section.html, which bench/compare.sh's report
# takes in, to DIR (bench/out-real). --resume continues an interrupted call. Nothing fails by time.
set -euo pipefail
export LC_ALL=C
here=$PWD
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
cd "$root"
source bench/setup.sh
for part in options results runs section disturbed; do
    # shellcheck source=/dev/null
    source "bench/compare/$part.sh"
done

usage() {
    sed -n '2,16s/^# \{0,1\}//p' bench/model/real.sh
}

out=bench/out-real rounds=5 links="100,5 10,10 2.5,25 1,50" bin=$root/build/bin steps=40 resume=0
patience=120 # seconds for runs that are made once more
declare -A flags=([--resume]=resume) values=([--rounds]=rounds [--links]=links [--steps]=steps [--patience]=patience)
declare -A paths=([--out]=out [--bin]=bin)
read_options bench/model/real.sh "$@"
need_number --rounds "$rounds" 1 1000
need_number --steps "$steps" 1 999999
need_number --patience "$patience" 0 999999
for link in $links; do need_link --links "$link"; done
[[ -n ${links// /} ]] || fail_usage "--links: expected at least one"
need_programs train_dp train_ddp ddprun bench_scale bench_profile bench_probe
claim_results
open_section real.csv profile.json sharing.txt
# shellcheck disable=SC2034 # disturbed.sh's
kind=cpu planning=0
hidden=512,512,512,512,512,512,512,512
common="--device cpu --model mlp --hidden $hidden --global-batch 128 --steps $steps --no-eval --log-every 1"

# measure_run NAME: one run between two probes. NAME is STRATEGY-LINK-ROUND; the link may be none, and the strategy
# noop, which is DDP without its communication.
measure_run() {
    local strategy=${1%%-*} link=${1#*-}
    link=${link%-*}
    # shellcheck disable=SC2086 # options are words
    set -- "$1" $common --out "$out/runs/$1"
    [[ $link == none ]] || set -- "$@" --link "$link"
    case $strategy in
    dp) between_probes "$1" run_once "$1" "$bin/train_dp" --devices 2 --bind cores "${@:2}" ;;
    noop) between_probes "$1" run_once "$1" "${ranks[@]}" --comm-hook noop "${@:2}" ;;
    ddp) between_probes "$1" run_once "$1" "${ranks[@]}" "${@:2}" ;;
    esac || exit 1
}
ranks=("$bin/ddprun" --nproc-per-node 2 --bind cores "$bin/train_ddp" --bucket-cap-mb 1)

rest=1000000,500 # Gbit/s, us
series="dp-none ddp-none noop-none dp-$rest"
for link in $links; do series="$series dp-$link ddp-$link"; done

begun=$SECONDS done=0
# The profile, with a neighbour on the other core.
# shellcheck disable=SC2016 # the inner shell's
between_probes profile run_once profile env PROGRAM="$bin/bench_profile" sh -c '
    taskset -c 1 "$PROGRAM" "$@" --rounds 150 >/dev/null 2>&1 &
    taskset -c 0 "$PROGRAM" "$@" --rounds 60 --save "$0" && wait' \
    "$out/runs/profile/profile.json" --hidden $hidden --rows 64 || exit 1
for ((round = 1; round <= rounds; round++)); do
    for one in $series; do
        say_progress $done $((rounds * $(wc -w <<<"$series"))) "round $round of $rounds: ${one%%-*}, link ${one#*-}"
        measure_run "$one-$round"
        done=$((done + 1))
    done
done
repeat_disturbed_runs "$patience"
cat "$out/runs/profile/output.txt"
cp "$out/runs/profile/profile.json" "$out/profile.json"
wake_us=$(sed -n 's/^wake_us=\([0-9.]*\).*/\1/p' "$out/runs/profile/output.txt")

# median SERIES [COLUMN...]: the median over the rounds that count of a run's median step, in milliseconds, or of what
# these columns of a step are together, without the first two steps; and "disturbed" if fewer than half of the rounds count.
median() {
    local -a steps
    local columns="${*:2}"
    mapfile -t steps < <(undisturbed_of "$1")
    local state=
    [[ ${steps[0]} != disturbed ]] || { state=" disturbed" && steps=("${steps[@]:1}"); }
    for one in "${steps[@]}"; do
        csv '!n { n = split(columns, part, " ") }
            of("step") >= 3 { ms = 0; for (i = 1; i <= n; i++) ms += of(part[i]); print ms }' \
            columns="${columns:-step_ms}" "$one" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
    done | sort -n | awk -v state="$state" '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] state }'
}

# model STRATEGY GBIT LATENCY_US [OPTION...]: prints how long a step takes by the algebra, in milliseconds
model() {
    "$bin/bench_scale" --profile "$out/profile.json" --devices 2 --bucket-cap-mb 1 --gbit "$2" --latency-us "$3" "${@:4}" |
        awk -F, -v s="$1" '/^devices,/ { for (i = 1; i <= NF; i++) if ($i == "step") at = i } $1 == 2 && $2 == s { print $at }'
}

# late_of STRATEGY GBIT,LATENCY_US: a message's latency and how late it wakes a thread, in microseconds. Each of DP's
# messages wakes one; of a ring's two rounds only the last does.
late_of() {
    echo "${2#*,} $wake_us $1" | awk '{ print $1 + ($3 == "dp" ? $2 : $2 / 2) }'
}

# Without a link: how many times as long two devices compute beside each other as one did, and the microseconds for a
# million bytes of DDP's sums and of DP's copies.
dp=$(median dp-none) ddp=$(median ddp-none) noop=$(median noop-none)
computing="forward_ms loss_ms backward_ms"
# shellcheck disable=SC2086 # columns
at_once=$(median dp-none $computing) rested=$(median "dp-$rest" $computing)
gradients=$(sed -n 's/.* gradients=\([0-9]*\) .*/\1/p' "$out/runs/profile/output.txt")
slowdown=$(echo "${noop% *} $(model ddp 1e6 0)" | awk '{ printf "%.4f", $1 / $2 }')
read -r sum_us copy_us < <(echo "${dp% *} ${ddp% *} ${noop% *} $(model dp 1e6 0 --straggler "$slowdown") $gradients" |
    awk '{ sum = $2 - $3; copy = ($1 - $4) / 2
           printf "%.3f %.3f\n", (sum > 0 ? sum : 0) * 1e9 / $5, (copy > 0 ? copy : 0) * 1e9 / $5 }')
rested_slowdown=$(echo "$slowdown ${rested% *} ${at_once% *}" | awk '{ printf "%.4f", $1 * $2 / $3 }')
echo "slowdown=$slowdown rested_slowdown=$rested_slowdown sum_us=$sum_us copy_us=$copy_us wake_us=$wake_us" |
    tee "$out/sharing.txt"

echo "link,strategy,model_ms,real_ms,real_over_model,disturbed" >"$out/real.csv"
for strategy in dp ddp; do
    [[ $strategy == dp ]] && times=$rested_slowdown || times=$slowdown
    for link in $links; do
        echo "$link $(model $strategy "${link%,*}" "$(late_of $strategy "$link")" --straggler "$times" \
            --sum-us "$sum_us" --copy-us "$copy_us") $(median "$strategy-$link")" |
            awk -v s="$strategy" '{ sub(",", " Gbit/s + ", $1)
                printf "emulated %s us,%s,%.2f,%.2f,%.3f,%d\n", $1, s, $2, $3, $3 / $2, $4 == "disturbed" }'
    done >>"$out/real.csv"
done
awk -F, '{ printf "%-31s %-8s %8s %8s %15s%s\n", $1, $2, $3, $4, $5, $6 == 1 ? " disturbed" : "" }' "$out/real.csv"

sentences() {
    if [[ $dp$ddp$noop$rested == *disturbed* ]] || grep -qx profile "$out/disturbed.txt"; then
        echo "The profile or the steps without a link were **disturbed**, and the model needs them: nothing is said of these."
        return
    fi
    awk -F, 'NR == 1 { next }
        $6 { disturbed++; next }
        { off = $5 > 1 ? $5 - 1 : 1 - $5; if (off > most) { most = off; where = toupper($2) " over " $1 } n++; near += off <= 0.1 }
        END {
            if (n) printf "Two devices on emulated links: of %d median steps %d are within 10 %% of the model; the one farthest from it is %s, %.0f %% off.\n", n, near, where, 100 * most
            if (disturbed) printf "%d others were **disturbed** and are not counted.\n", disturbed
        }' "$out/real.csv"
    echo "Three numbers are measured without a link: two devices that do not communicate compute $slowdown times as long"
    echo "as one did; DDP's sums take a core $sum_us us for a million bytes, DP's copies $copy_us us. A sleep ends $wake_us us late."
    echo "DP's devices sleep between their parts of a step, and compute $rested_slowdown times as long then: that is measured over a"
    echo "link on which each message takes half a millisecond and its bytes nothing."
}
{
    echo "## The model beside real steps"
    echo
    sentences
    echo
    awk -F, 'NR == 1 { print "| link | strategy | model, ms | real, ms | real over model |"; print "|---|---|---:|---:|---:|"; next }
        { printf "| %s | %s | %s | %s | %s%s |\n", $1, $2, $3, $4, $5, $6 ? " disturbed" : "" }' "$out/real.csv"
    echo
    machine_facts "$(head -n 1 "$out/runs/profile/output.txt" | tr -d '"')" "Command: \`$asked\`"
} >"$out/section.md"
write_section real
