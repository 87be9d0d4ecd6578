#!/usr/bin/env bash
# published.sh: the model of a step beside what the DDP paper published (PVLDB 13, 2020): the scaling of figure 9, and
# the bucket sizes of figure 7.
#
#   bench/model/published.sh [--out DIR] [--bin DIR] [--simulate]
#
# A profile of ResNet-50 and of BERT-large is made of what the paper says of one GPU: its step, cut as in figure 6; the
# tensors are those of the networks, ready by their share of the work. Numbers are fitted to the points of each run by
# the smallest largest relative error (bench_fit): the width of a GPU's link, in rings of rings with 8 GPUs in a node;
# what an all-reduce costs besides its bytes, for each message or for each call; and how many times as long a GPU
# computes beside others. Then each point is held out in turn and predicted from the others. What the fits of figure 7
# (16 GPUs) say of the same bucket sizes on 32 GPUs is written, too, to be compared with a measurement. --simulate:
# figure 9's fitted steps message by message with SimGrid, too.
# Prints tables and writes published.csv, fitted.csv, predicted.csv and section.html, which bench/compare.sh's report
# takes in, to DIR (bench/out-published). Nothing is measured here.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../compare/begin.sh"

out=bench/out-published simulate=0
read_options bench/model/published.sh "$@"
simulate=$([[ $simulate == 0 ]] || echo --simulate)
get_ready bench_fit bench_scale
open_results {published,fitted,predicted}.csv {ResNet50,BERT}-{NCCL,Gloo}.{json,points,fits}

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

# scale NAME NUMBERS OPTION ...: DDP's row of bench_scale, with the numbers of a fit
scale() {
    local name=$1 gbit latency call slowdown
    IFS=, read -r gbit latency call slowdown _ <<<"$2"
    "$bin/bench_scale" --profile "$out/$name.json" --rows 1 --algorithm hierarchical --node-size 8 --gbit "$gbit" \
        --inside-gbit "$gbit" --latency-us "$latency" --inside-latency-us "$latency" --call-us "$call" \
        --straggler "$slowdown" "${@:3}" |
        awk -F, '/^devices,/ { for (i = 1; i <= NF; i++) at[$i] = i }
            $2 == "ddp" { print $(at["simulated" in at ? "simulated" : "step"]) / 1000 }'
}

# fit RUN FIGURE COST: a fit of the points in NAME.points: a line of fitted.csv and lines of published.csv
fit() {
    local name=${1// /-} numbers gpus paper mib fitted held beside
    "$bin/bench_fit" --profile "$out/$name.json" --points "$out/$name.points" --cost "$3" >"$out/$name.fits"
    numbers=$(head -n 1 "$out/$name.fits" | sed -E 's/ at_its_limit=([a-z_]*)/;\1/g; s/[a-z_]*=//g; s/ /,/g; s/;/,/; s/;/ /g')
    [[ $numbers == *,*,*,*,*,* ]] || numbers=$numbers,
    echo "$1,$2,$3,$numbers" >>"$out/$name-fitted"
    sed 1,2d "$out/$name.fits" | while IFS=, read -r gpus paper mib fitted held; do
        beside=
        if [[ -n $simulate && $2 == 9 ]]; then beside=$(scale "$name" "$numbers" --devices "$gpus" --simulate); fi
        echo "$1,$2,$3,$gpus,$mib,$paper,$fitted,$held,$beside"
    done >>"$out/$name-published"
}

# beside RUN NETWORK FORWARD BACKWARD OPTIMIZER: figures 9 and 7 of a run
beside() {
    local name=${1// /-} cost mib
    rm -f "$out/$name"-{published,fitted,predicted}
    echo "$1: figures 9 and 7" >&2
    profile "$2" "$name" "$(awk -F, -v run="$1" '$1 == run && $2 == 1 { print $3 }' bench/paper/figure9.csv)" "$3" "$4" "$5"
    awk -F, -v run="$1" '$1 == run && $2 > 1 { print $2 "," $3 }' bench/paper/figure9.csv >"$out/$name.points"
    for cost in message both; do fit "$1" 9 $cost; done
    awk -F, -v run="$1" '$1 == run { print 16 "," $3 "," $2 }' bench/paper/figure7.csv >"$out/$name.points"
    for cost in message call; do fit "$1" 7 $cost; done
    for cost in message call; do
        for mib in $(cut -d, -f3 "$out/$name.points"); do
            echo "$1,32,$mib,$cost,$(scale "$name" "$(sed -n "s/^$1,7,$cost,//p" "$out/$name-fitted")" --devices 32 --bucket-cap-mb "$mib")"
        done
    done >"$out/$name-predicted"
}

jobs=()
beside 'ResNet50 NCCL' resnet50 0.15 0.39 0.02 & jobs+=($!)
beside 'ResNet50 Gloo' resnet50 0.12 0.28 0.01 & jobs+=($!)
beside 'BERT NCCL' bert 0.09 0.41 0.02 & jobs+=($!)
beside 'BERT Gloo' bert 0.06 0.25 0.01 & jobs+=($!)
for job in "${jobs[@]}"; do wait "$job"; done
gather() { # NAME HEADER: NAME.csv of the runs' parts
    echo "$2" >"$out/$1.csv"
    cat "$out"/{ResNet50-NCCL,ResNet50-Gloo,BERT-NCCL,BERT-Gloo}-"$1" >>"$out/$1.csv"
    rm "$out"/{ResNet50,BERT}-{NCCL,Gloo}-"$1"
}
gather published run,figure,cost,gpus,bucket_mb,paper_s,fitted_s,held_out_s,simulated_s
gather fitted run,figure,cost,gbit,latency_us,call_us,slowdown,largest_error,at_its_limit
gather predicted run,gpus,bucket_mb,cost,seconds
write_report published
