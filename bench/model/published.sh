#!/bin/sh
# published.sh: the model of a step beside the scaling that the DDP paper published (PVLDB 13, 2020, figure 9).
#
#   bench/model/published.sh [--out DIR] [--bin DIR] [--simulate]
#
# A profile of ResNet-50 and of BERT-large is made of what the paper says of one GPU: its step, cut as in figure 6; the
# tensors are those of the networks, ready by their share of the work. Three numbers are calibrated for each run, each
# on one point of figure 9: the width inside a node of 8 GPUs (on 8), the width between nodes (on 32), and the latency
# between nodes (on 256). The other points are predictions. --simulate: message by message with SimGrid, too.
# Prints a table and writes published.csv and section.html, which bench/compare.sh's report takes in, to DIR
# (bench/out-published). The paper's cluster was shared: BERT took longer on 16 GPUs than on 32, which no model does.
set -eu
export LC_ALL=C
root=$(cd "$(dirname "$0")/../.." && pwd)
out=bench/out-published bin=$root/build/bin simulate=
while [ $# -gt 0 ]; do
    case $1 in
    --out | --bin)
        [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2 && exit 2; }
        [ "$1" = --out ] && out=$2 || bin=$2
        shift
        ;;
    --simulate) simulate=--simulate ;;
    --help | -h) sed -n '2,12s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "error: unknown option $1 (--help shows them)" >&2 && exit 2 ;;
    esac
    shift
done
[ -x "$bin/bench_scale" ] || { echo "error: there is no $bin/bench_scale; build the project first" >&2 && exit 2; }
mkdir -p "$out"

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

# seconds NAME GPUS [--simulate]: the model's step, with $inside, $between (Gbit/s) and $latency (us).
seconds() {
    if [ "$2" -le 8 ]; then
        set -- "$1" "$2" "${3:-}" --gbit "$inside" --latency-us 5
    else
        set -- "$1" "$2" "${3:-}" --algorithm hierarchical --node-size 8 --inside-gbit "$inside" --inside-latency-us 5 \
            --gbit "$between" --latency-us "$latency"
    fi
    name=$1 gpus=$2 how=$3
    shift 3
    # shellcheck disable=SC2086 # no word, or one
    "$bin/bench_scale" --profile "$out/$name.json" --devices "$gpus" --rows 1 "$@" $how |
        awk -F, -v wanted="${how:+simulated}" '/^devices,/ { for (i = 1; i <= NF; i++) if ($i == (wanted ? wanted : "step")) at = i }
            $2 == "ddp" { print $at / 1000 }'
}

# published RUN GPUS: the paper's seconds.
published() {
    awk -F, -v run="$1" -v gpus="$2" '$1 == run && $2 == gpus { print $3 }' "$root/bench/paper/figure9.csv"
}

# calibrate NAME RUN GPUS VARIABLE FROM TO: the variable's value at which the model meets that point, by halving
# intervals on a scale of powers; FROM gives the longer step.
calibrate() {
    target=$(published "$2" "$3") low=$5 high=$6 turn=0
    while [ $turn -lt 18 ]; do
        middle=$(awk "BEGIN { printf \"%.6g\", sqrt($low * $high) }")
        eval "$4=$middle"
        if awk "BEGIN { exit !($(seconds "$1" "$3") > $target) }"; then low=$middle; else high=$middle; fi
        turn=$((turn + 1))
    done
}

echo "run,gpus,calibrated,paper_s,model_s,model_over_paper${simulate:+,simulated_s}" >"$out/published.csv"
: >"$out/calibrated.txt"
# beside RUN NETWORK FORWARD BACKWARD OPTIMIZER
beside() {
    name=$(echo "$1" | tr ' ' '-')
    profile "$2" "$name" "$(published "$1" 1)" "$3" "$4" "$5"
    between=1000 latency=1
    calibrate "$name" "$1" 8 inside 0.1 1000
    calibrate "$name" "$1" 32 between 0.1 1000
    calibrate "$name" "$1" 256 latency 10000 0.1
    printf '%s: %.3g Gbit/s inside a node, %.3g between nodes, %.3g us\n' "$1" "$inside" "$between" "$latency" >>"$out/calibrated.txt"
    for gpus in 2 4 8 16 32 64 128 256; do
        case $gpus in 8 | 32 | 256) on=1 ;; *) on=0 ;; esac
        model=$(seconds "$name" $gpus)
        simulated=${simulate:+,$(seconds "$name" $gpus $simulate)}
        awk -v run="$1" -v gpus=$gpus -v on=$on -v paper="$(published "$1" $gpus)" -v model="$model" -v simulated="$simulated" \
            'BEGIN { printf "%s,%d,%d,%s,%.4f,%.3f%s\n", run, gpus, on, paper, model, model / paper, simulated }'
    done >>"$out/published.csv"
}
beside 'ResNet50 NCCL' resnet50 0.15 0.39 0.02
beside 'ResNet50 Gloo' resnet50 0.12 0.28 0.01
beside 'BERT NCCL' bert 0.09 0.41 0.02
beside 'BERT Gloo' bert 0.06 0.25 0.01

awk -F, '{ printf "%-14s %5s %10s %8s %8s %17s%s\n", $1, $2, $3, $4, $5, $6, $7 == "" ? "" : "  " $7 }' "$out/published.csv"
cat "$out/calibrated.txt"
{
    echo "## The model beside published steps"
    echo
    awk -F, 'NR == 1 || $3 { next }
        { off = $6 > 1 ? $6 - 1 : 1 - $6; n[$1]++; near[$1] += off <= 0.15; if (off > most[$1]) { most[$1] = off; at[$1] = $2 } if (!($1 in place)) { place[$1] = ++runs; run[runs] = $1 } }
        END { for (i = 1; i <= runs; i++) printf "%s: of %d predictions %d are within 15 %%; the one farthest from the paper is %d GPUs, %.0f %% off.\n", \
            run[i], n[run[i]], near[run[i]], at[run[i]], 100 * most[run[i]] }' "$out/published.csv"
    echo
    echo "Each run is calibrated on three of its points (8, 32 and 256 GPUs); the others are predicted. The paper's cluster was"
    echo "shared, and its points are medians of single runs: BERT over NCCL took longer on 16 GPUs than on 32."
    echo
    awk -F, 'NR == 1 { print "| run | GPUs | paper, s | model, s | model over paper |"; print "|---|---:|---:|---:|---:|"; next }
        { printf "| %s | %s%s | %s | %s | %s |\n", $1, $2, $3 ? " (calibrated)" : "", $4, $5, $6 }' "$out/published.csv"
    echo
    sed 's/^/- /' "$out/calibrated.txt"
} >"$out/section.md"
folder=$out awk -v fragment=published -f "$root/bench/compare/markdown.awk" "$out/section.md" >"$out/section.html"
