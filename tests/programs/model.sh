#!/bin/sh
# model.sh BIN: the model of a step (bench/model) against its algebra, worked out here from a profile whose numbers are
# easy; what is wrong with a profile is named; SimGrid agrees where it is installed; a measured profile can be read.
model=$(cd "$(dirname "$0")/../../bench/model" && pwd)
. "$(dirname "$0")/checks.sh"

# holds WHAT CONDITION: awk finds the condition true.
holds() {
    checks=$((checks + 1))
    awk "BEGIN { exit !($2) }" </dev/null || fail "$1: not $2"
}

# Forward 2 ms + 0.1 ms a row, backward twice that, 4 tensors of 1 MiB that are ready one after the other.
cat >profile.json <<'END'
{"name": "easy", "rows": [5, 10], "forward_s": [0.002, 0.0001], "loss_s": [0, 0.00001],
 "backward_s": [0.004, 0.0002], "optimizer_s": 0.001, "sample_bytes": 1000, "output_bytes": 100, "messages": 4,
 "tensors": [{"bytes": 1048576, "ready": 0.25}, {"bytes": 1048576, "ready": 0.5},
             {"bytes": 1048576, "ready": 0.75}, {"bytes": 1048576, "ready": 1}]}
END
scale() { # OPTION...
    "$bin/bench_scale" --profile profile.json --rows 10 --bucket-cap-mb 1 "$@"
}
# The value of a column in the row of so many devices and a strategy.
column() { # NAME DEVICES STRATEGY
    awk -F, -v name="$1" -v devices="$2" -v strategy="$3" '
        /^devices,/ { for (i = 1; i <= NF; i++) if ($i == name) at = i }
        $1 == devices && $2 == strategy { print $at }' out
}
# near NAME DEVICES STRATEGY EXPRESSION: the column is what awk works out.
near() {
    got=$(column "$1" "$2" "$3")
    holds "$3 on $2 devices, $1" "${got:-0} > 0 && (d = ${got:-0} / ($4) - 1) * d < 1e-14"
}

# 8 Gbit/s are 1e9 bytes a second: a MiB takes 1.048576 ms, and the latency is 0.1 ms.
scale --gbit 8 --latency-us 100 --devices 1,4 >out
near step 1 dp '3 + 0.1 + 6 + 1'
near step 1 ddp '3 + 0.1 + 6 + 1'
near replicate 4 dp '3 * (4 * 0.1 + 4 * 1.048576)'
near scatter 4 dp '3 * (0.1 + 0.01)'
near gather 4 dp '3 * 2 * (0.1 + 0.001)'
near loss 4 dp '0.4'
# A ring of four: 6 rounds of a quarter. Its 2.17 ms are longer than the 1.5 ms between two buckets.
near exposed 4 ddp '1.5 + 4 * 6 * (0.1 + 1.048576 / 4) - 6'
near step 4 ddp '3 + 0.1 + 6 + 1 + 1.5 + 4 * 6 * (0.1 + 1.048576 / 4) - 6'
scale --gbit 8 --latency-us 100 --devices 4 --no-overlap >out
near exposed 4 ddp '4 * 6 * (0.1 + 1.048576 / 4)'
# Hidden but for the last bucket.
scale --gbit 80 --latency-us 0 --devices 4 >out
near exposed 4 ddp '6 * 0.1048576 / 4'
scale --gbit 8 --latency-us 100 --devices 8 --algorithm tree >out
near exposed 8 ddp '1.5 + 4 * 6 * (0.1 + 1.048576) - 6'
scale --gbit 8 --latency-us 100 --inside-gbit 80 --inside-latency-us 10 --devices 8 --algorithm hierarchical --node-size 4 >out
near exposed 8 ddp '6 * (0.01 + 0.1048576 / 4) + 2 * (0.1 + 1.048576 / 4 / 2)'
scale --gbit 8 --latency-us 0 --devices 4 --straggler 2 >out
near forward 4 ddp 6
near exposed 4 ddp '6 * 1.048576 / 4'
scale --bucket-cap-mb 2 --devices 2 --buckets >out
holds "a cap of 2 MiB makes two buckets" "$(grep -c '^[01],2,2097152,' out) == 2"
# At the break-even W devices train as many rows a second as one.
scale --devices 4 --latency-us 0 >out
gbit=$(sed -n 's/^# dp on 4 .* from \([0-9.e+-]*\) Gbit.*/\1/p' out)
scale --devices 4 --latency-us 0 --gbit "$gbit" >out
holds "efficiency at DP's break-even" "$(column efficiency 4 dp) > 0.2499 && $(column efficiency 4 dp) < 0.2501"

# SimGrid sends every message.
if scale --devices 2 --simulate >out 2>err.txt; then
    for how in "--algorithm ring" "--algorithm tree" "--algorithm hierarchical --node-size 4" "--straggler 1.7"; do
        # shellcheck disable=SC2086 # options are words
        scale --gbit 8 --devices 8,16 --simulate $how >out
        for strategy in dp ddp; do
            ratio=$(column model_over_simulated 16 $strategy)
            holds "SimGrid agrees, $strategy $how" "$ratio > 0.99 && $ratio < 1.01"
        done
    done
    refuse 2 'do not fill nodes of 3' "$bin/bench_scale" --profile profile.json --devices 4 --node-size 3 --simulate
else
    echo "not simulated: $(cat err.txt)"
fi

# A measured profile is one that can be read: 18 tensors of eight hidden layers, ready in order.
run "bench_profile" "$bin/bench_profile" --rows 8 --rounds 2 --save measured.json
run "bench_scale reads it" "$bin/bench_scale" --profile measured.json --devices 2
holds "it has 18 tensors" "$(grep -o '"ready"' measured.json | wc -l) == 18"

# The model beside real steps: a row for each link and strategy. (Times are nobody's promise.)
if [ "$(nproc)" -ge 2 ]; then
    run "real.sh" "$model/real.sh" --bin "$bin" --out real --rounds 1 --steps 6 --links 10,10
    holds "a row for each strategy" "$(grep -c '^10 Gbit/s + 10 us,d*dp,[0-9.]*,[0-9.]*,[0-9.]*$' real/real.csv) == 2"
    holds "a section for the report" "$(grep -c '<h2>The model beside real steps' real/section.html) == 1"
fi

# The model beside the paper: the networks are the real ones, and the points that calibrate are met.
run "published.sh" "$model/published.sh" --bin "$bin" --out published
size() { grep -o '"bytes": [0-9]*' "published/$1.json" | awk '{ sum += $2 } END { printf "%d tensors, %d", NR, sum / 4 }'; }
checks=$((checks + 2))
[ "$(size ResNet50-NCCL)" = "161 tensors, 25557032" ] || fail "ResNet-50: $(size ResNet50-NCCL)"
[ "$(size BERT-Gloo)" = "391 tensors, 335141888" ] || fail "BERT: $(size BERT-Gloo)"
holds "32 points, of which 12 calibrate" "$(awk -F, 'NR > 1 { n++; c += $3 } END { print n * 100 + c }' published/published.csv) == 3212"
awk -F, 'NR > 1 && $3 && $2 != 32 && ($6 < 0.98 || $6 > 1.02)' published/published.csv >missed
[ ! -s missed ] || fail "a calibrated point is missed: $(cat missed)"
holds "a section for the report" "$(grep -c '<h2>The model beside published steps' published/section.html) == 1"

# broken WORDS SED-SCRIPT: the profile, changed so, is refused with these words.
broken() {
    sed "$2" profile.json >broken.json
    refuse 2 "$1" "$bin/bench_scale" --profile broken.json
}
broken 'forward_s: expected a number' 's/"forward_s": \[0.002, /"forward_s": ["x", /'
broken 'not in the order' 's/"ready": 0.75/"ready": 0.1/'
broken 'ready: expected a number from 0 to 1' 's/"ready": 1}/"ready": 2}/'
broken 'tensors: expected a list' 's/"tensors"/"tensor"/'
broken 'it is not a JSON object' '1s/{/[/'
refuse 2 'is needed' "$bin/bench_scale"
refuse 2 'cannot read' "$bin/bench_scale" --profile nowhere.json
refuse 2 'expected at most' "$bin/bench_scale" --profile profile.json --devices 0
tally model
