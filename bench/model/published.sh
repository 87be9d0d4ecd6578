#!/usr/bin/env bash
# published.sh: the model of a step beside the scaling that the DDP paper published (PVLDB 13, 2020, figure 9).
#
#   bench/model/published.sh [--out DIR] [--bin DIR] [--simulate]
#
# A profile of ResNet-50 and of BERT-large is made of what the paper says of one GPU: its step, cut as in figure 6; the
# tensors are those of the networks, ready by their share of the work. Three numbers are fitted to the eight points of
# each run by the smallest largest relative error (bench_fit): the width and the latency of a GPU's link, in rings of
# rings with 8 GPUs in a node, and how many times as long a GPU computes beside others. Then each point is held out in
# turn and predicted from the others. --simulate: the fitted steps message by message with SimGrid, too.
# Prints a table and writes published.csv and section.html, which bench/compare.sh's report takes in, to DIR
# (bench/out-published). Nothing is measured here.
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
    sed -n '2,12s/^# \{0,1\}//p' bench/model/published.sh
}

out=bench/out-published bin=$root/build/bin simulate=0 resume=0
declare -A flags=([--simulate]=simulate) values=() paths=([--out]=out [--bin]=bin)
read_options bench/model/published.sh "$@"
need_programs bench_fit $([[ $simulate == 0 ]] || echo bench_scale)
simulate=$([[ $simulate == 0 ]] || echo --simulate)
claim_results
open_results {published,points}.csv fitted.txt {ResNet50,BERT}-{NCCL,Gloo}.{json,csv}

# The tensors of a network in the order of forward: "count work" lines, work in multiplications of a sample.
resnet50() {
    awk 'function conv(out, in_, k, side) { print out * in_ * k * k, out * in_ * k * k * side * side; print out, 0; print out, 0 }
        BEGIN {
            conv(64, 3, 7, 112)
            inputs = 64
            split("3 4 6 3", blocks, " ")
            for (stage = 1; stage <= 4; stage++) {
                planes = 32 * 2 ^ stage
                side = 112 / 2 ^ stage
                for (b = 1; b <= blocks[stage]; b++) {
                    conv(planes, inputs, 1, b == 1 && stage > 1 ? 2 * side : side)
                    conv(planes, planes, 3, side)
                    conv(4 * planes, planes, 1, side)
                    if (b == 1) conv(4 * planes, inputs, 1, side)
                    inputs = 4 * planes
                }
            }
            print 1000 * 2048, 1000 * 2048
            print 1000, 0
        }'
}
bert() { # large: 24 layers of 1024, 30,522 words
    awk 'function linear(out, in_) { print out * in_, out * in_; print out, 0 }
        function norm() { print 1024, 0; print 1024, 0 }
        BEGIN {
            print 30522 * 1024, 0; print 512 * 1024, 0; print 2 * 1024, 0; norm()
            for (layer = 1; layer <= 24; layer++) {
                for (i = 1; i <= 4; i++) linear(1024, 1024)
                norm(); linear(4096, 1024); linear(1024, 4096); norm()
            }
            linear(1024, 1024)
        }'
}

# profile NETWORK NAME SECONDS FORWARD BACKWARD OPTIMIZER: a step of so many seconds, cut in that proportion. Backward
# is over when the work of all layers is done, the last layer first.
profile() {
    $1 | awk -v name="$2" -v step="$3" -v f="$4" -v b="$5" -v o="$6" '
        { count[NR] = $1; work[NR] = $2; all += $2 }
        END {
            unit = step / (f + b + o)
            printf "{\"name\": \"%s\", \"rows\": [1, 2], \"forward_s\": [%.9g, 0], \"loss_s\": [0, 0], \"backward_s\": [%.9g, 0],\n", \
                name, f * unit, b * unit
            printf " \"optimizer_s\": %.9g, \"sample_bytes\": 0, \"output_bytes\": 0, \"messages\": 1,\n \"tensors\": [", o * unit
            for (i = NR; i >= 1; i--) {
                done += work[i]
                printf "%s{\"bytes\": %d, \"ready\": %.9g}", i < NR ? ", " : "", 4 * count[i], done < all ? done / all : 1
            }
            print "]}"
        }' >"$out/$2.json"
}

# simulated NAME NUMBERS GPUS: SimGrid's seconds, with what bench_fit found.
simulated() {
    # shellcheck disable=SC2046 # the numbers are options
    "$bin/bench_scale" --profile "$out/$1.json" --devices "$3" --rows 1 --simulate --algorithm hierarchical --node-size 8 \
        $(echo "$2" | awk '{ for (i = 1; i <= 3; i++) { split($i, v, "="); number[v[1]] = v[2] }
            printf "--gbit %s --inside-gbit %s --latency-us %s --inside-latency-us %s --straggler %s", number["gbit"], number["gbit"],
                number["latency_us"], number["latency_us"], number["slowdown"] }') |
        awk -F, '/^devices,/ { for (i = 1; i <= NF; i++) if ($i == "simulated") at = i } $2 == "ddp" { print $at / 1000 }'
}

echo "run,gpus,paper_s,fitted_s,held_out_s,fitted_off,held_out_off${simulate:+,simulated_s}" >"$out/published.csv"
: >"$out/fitted.txt"
# beside RUN NETWORK FORWARD BACKWARD OPTIMIZER
beside() {
    name=$(echo "$1" | tr ' ' '-')
    echo "$1: eight points, nine fits" >&2
    awk -F, -v run="$1" '$1 == run { print $2 "," $3 }' bench/paper/figure9.csv >"$out/points.csv"
    profile "$2" "$name" "$(sed -n 's/^1,//p' "$out/points.csv")" "$3" "$4" "$5"
    sed -i '/^1,/d' "$out/points.csv"
    "$bin/bench_fit" --profile "$out/$name.json" --points "$out/points.csv" >"$out/$name.csv"
    numbers=$(head -n 1 "$out/$name.csv")
    echo "$1: $numbers" >>"$out/fitted.txt"
    sed 1,2d "$out/$name.csv" | while IFS=, read -r gpus paper fitted held; do
        echo "$1,$gpus,$paper,$fitted,$held,$(echo "$paper $fitted $held" |
            awk '{ printf "%+.1f,%+.1f", 100 * ($2 / $1 - 1), 100 * ($3 / $1 - 1) }')${simulate:+,$(simulated "$name" "$numbers" "$gpus")}"
    done >>"$out/published.csv"
}
beside 'ResNet50 NCCL' resnet50 0.15 0.39 0.02
beside 'ResNet50 Gloo' resnet50 0.12 0.28 0.01
beside 'BERT NCCL' bert 0.09 0.41 0.02
beside 'BERT Gloo' bert 0.06 0.25 0.01

# limits: says which fitted number lies where the search ends, and what that means
limits() {
    sed -n 's/^\([^:]*\):.* at_its_limit=\(.*\)/\1: \2 lies where plausible values end, so the points do not determine it./p' "$out/fitted.txt"
}
awk -F, '{ printf "%-14s %5s %8s %9s %10s %10s %12s%s\n", $1, $2, $3, $4, $5, $6, $7, $8 == "" ? "" : " " $8 }' "$out/published.csv"
cat "$out/fitted.txt"
limits
{
    echo "## The model beside published steps"
    echo
    awk -F, 'function off(x) { return x < 0 ? -x : x }
        NR == 1 { next }
        { if (!($1 in n)) run[++runs] = $1; n[$1]++; fits[$1] += off($6) <= 15; holds[$1] += off($7) <= 15
          if (off($6) > most[$1]) most[$1] = off($6)
          if (off($7) > far[$1]) { far[$1] = off($7); at[$1] = $2 } }
        END { for (i = 1; i <= runs; i++) { r = run[i]
            printf "%s: fitted, %d of %d points are within 15 %% (the farthest %.0f %% off); held out, %d are, and %d GPUs are farthest, %.0f %% off.\n", \
                r, fits[r], n[r], most[r], holds[r], at[r], far[r] } }' "$out/published.csv"
    limits
    echo
    echo "Three numbers are fitted to each run: the width and the latency of a GPU's link, and how many times as long a GPU"
    echo "computes beside others. *Held out* is what the fit to the other seven points says of a point. The paper's cluster was"
    echo "shared, and its points are medians of single runs: BERT over NCCL took longer on 16 GPUs than on 32, which no such"
    echo "model does. Points that are farther than 15 % off are **bold**."
    echo
    awk -F, 'function cell(x) { return x > 15 || x < -15 ? "**" x "**" : x }
        NR == 1 { print "| run | GPUs | paper, s | fitted, s | off, % | held out, s | off, % |"; print "|---|---:|---:|---:|---:|---:|---:|"; next }
        { printf "| %s | %s | %s | %.3f | %s | %.3f | %s |\n", $1, $2, $3, $4, cell($6), $5, cell($7) }' "$out/published.csv"
    echo
    sed -E 's/^([^:]*): gbit=([^ ]*) latency_us=([^ ]*) slowdown=([^ ]*) .*/- \1: \2 Gbit\/s and \3 us for each message, computing takes \4 times as long/' "$out/fitted.txt"
} >"$out/section.md"
write_section published
