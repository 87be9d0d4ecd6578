#!/usr/bin/env bash
# report_sentences.sh BIN_DIR: the sentences of bench/compare.sh's report, from files made by hand whose answers
# are known: what DDP saves and why, where it takes more, ties, and rows that were disturbed.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$root"
checks=0 failures=0

# expect WHAT WANTED SEEN
expect() {
    checks=$((checks + 1))
    [[ $2 == "$3" ]] && return
    failures=$((failures + 1))
    printf 'FAILED: %s\n  expected: %s\n  got:      %s\n' "$1" "$2" "$3"
}

phases="data scatter replicate forward gather loss backward reduce exposed optimizer other"
# row STRATEGY MODEL WORLD DISTURBED P25 P50 P75 PHASE=MS...: a row of summary.csv
row() {
    local phase fact ms line="$1,$2,$3,1,$4,$5,$6,$7,300,$(awk -v ms="$6" 'BEGIN { print 300000 / ms }'),2e6"
    for phase in $phases; do
        ms=0
        for fact in "${@:8}"; do [[ $fact != "$phase="* ]] || ms=${fact#*=}; done
        line+=,$ms
    done
    echo "$line"
}
{
    echo "strategy,model,world_size,timed,disturbed,step_ms_p25,step_ms_p50,step_ms_p75,global_batch,samples_per_s_p50,peak_bytes_device0,$(
        for phase in $phases; do printf '%s_ms\n' "$phase"; done | paste -sd , -)"
    row single mlp 1 0 29 30 31 forward=10 backward=20
    row dp mlp 2 0 17.5 17.9 18.2 replicate=0.4 forward=5 gather=0.1 backward=10 reduce=1.9 optimizer=0.4
    row ddp mlp 2 0 14.9 15.1 15.3 forward=5 backward=9.2 exposed=0.3 optimizer=0.4
    row dp mlp 4 0 9.8 10 10.2 forward=4 backward=5 reduce=0.9
    row ddp mlp 4 0 10.9 11 11.2 forward=4 backward=5 exposed=2
    row single convnet 1 0 7 8 9 forward=8
    row dp convnet 2 0 4 5 6 forward=5
    row ddp convnet 2 0 4.5 5.5 6.5 forward=5.5
    row dp convnet 4 1 4 5 6 forward=5
    row ddp convnet 4 0 1.5 2.5 3.5 forward=2.5
} >"$out/summary.csv"

awk -f bench/compare/difference.awk "$out/summary.csv" >"$out/difference.csv"
say() { awk -v where="on this machine" -v cores=2 -v units=cores -f bench/compare/answer.awk "$1"; }
say "$out/difference.csv" >"$out/said"
expect "DDP wins" "mlp, 2 devices: on this machine, DDP saves 2.80 ms of DP's 17.90 per step (15.6 %): reduce -1.90,\
 backward -0.80, replicate -0.40, exposed +0.30, all else 0.00. The largest part is reduce: DP adds all\
 gradients up on device 0." "$(sed -n 1p "$out/said")"
expect "DP wins" "mlp, 4 devices: on this machine, DDP takes 1.00 ms more than DP's 10.00 per step (10.0 %): exposed\
 +2.00, reduce -0.90, all else -0.10. The largest part is exposed: all-reduce that DDP's backward pass did not\
 hide, and waits for a slower rank. With 4 devices on 2 cores they take turns, and each phase holds waits." \
    "$(sed -n 2p "$out/said")"
expect "a tie" "convnet, 2 devices: on this machine, DP and DDP tie: their steps take 5.00 and 5.50 ms,\
 each median within the other's quartiles. What DDP's phases take more or less, in ms: forward +0.50, all else 0.00." "$(sed -n 3p "$out/said")"
expect "disturbed" "convnet, 4 devices: on this machine, disturbed by other work; no conclusion." \
    "$(sed -n 4p "$out/said")"
expect "lines" 4 "$(wc -l <"$out/said")"

# The reason is that of the strategy whose phase is longer, in both directions; without one there is none.
reason() { # PHASE DP_MS DDP_MS
    {
        head -n 1 "$out/summary.csv"
        row single mlp 1 0 39 40 41 forward=40
        row dp mlp 2 0 $((19 + $2)) $((20 + $2)) $((21 + $2)) "$1=$2" other=20
        row ddp mlp 2 0 $((19 + $3)) $((20 + $3)) $((21 + $3)) "$1=$3" other=20
    } >"$out/one.csv"
    awk -f bench/compare/difference.awk "$out/one.csv" >"$out/one-difference.csv"
    say "$out/one-difference.csv" | sed -n 's/.* The largest part is //p'
}
while IFS='|' read -r phase dp ddp; do
    expect "DP's $phase is longer" "${dp:+$phase: $dp.}" "$(reason "$phase" 9 1)"
    expect "DDP's $phase is longer" "${ddp:+$phase: $ddp.}" "$(reason "$phase" 1 9)"
done <<'END'
data|DP takes the batch for all devices, a rank its own part|
scatter|DP's device 0 hands the inputs out|
replicate|DP sends the weights to every device in every step|DDP broadcasts rank 0's buffers (batch norm's statistics) before each forward, and waits there for a slower rank
forward||
gather|DP brings the outputs back to device 0|
loss|DP's device 0 computes the loss alone|
backward||
reduce|DP adds all gradients up on device 0|
exposed||all-reduce that DDP's backward pass did not hide, and waits for a slower rank
optimizer||on DDP every rank runs an optimizer, on DP device 0 alone
END

# The figures in a sentence add up, whatever was rounded.
wrong=$(sed -n 's/.* DDP \(saves\|takes\) \([0-9.]*\) ms.*%): \(.*all else [-+0-9.]*[0-9]\).*/\1 \2 \3/p' "$out/said" | tr -d , |
    awk '{ sum = 0; for (i = 3; i <= NF; i++) if ($i ~ /^[-+]?[0-9]/) sum += $i
        want = $1 == "saves" ? -$2 : $2; d = sum - want; if (d > 0.005 || d < -0.005) print $0, sum }')
expect "sums" "" "$wrong"

# Phases that do not add up to the step: nothing is said.
sed 's/^\(mlp,2,saves,reduce,reduce,.*\),-1.9000$/\1,-1.0000/' "$out/difference.csv" >"$out/wrong.csv"
status=0
say "$out/wrong.csv" >"$out/said" 2>"$out/err" || status=$?
expect "status of phases that do not add up" 1 "$status"
expect "phases that do not add up" "" "$(cat "$out/said")"

# ---- the figures' sentences --------------------------------------------------------------------------------
source bench/compare/runs.sh
source bench/compare/answer.sh
models="mlp convnet" cores=2
timed_worlds() { echo "2 4"; }
curve_models() { echo mlp; }
mkdir "$out/plots"
expect "the world of the figures" 2 "$(answer_world)"
expect "the world of one core" 2 "$(cores=1 && answer_world)"
expect "the world of eight cores" 4 "$(cores=8 && answer_world)"
for model in $models; do
    awk -F, -v model=$model 'NR == 1 || $2 == model' "$out/summary.csv" >"$out/plots/$model.csv"
done
compare_phases
expect "difference" "mlp: DDP's step takes 2.80 ms less than DP's, and of its phases reduce differs most and takes 1.90 ms less;\
 convnet: DDP's step takes 0.50 ms more than DP's, and of its phases forward differs most and takes 0.50 ms more." "$(caption_difference)"
# Why the link decides; the answer begins with the first model, here and over the link.
has_link() { [[ -f $out/summary-link.csv ]]; }
expect "why, without a link" "mlp, 2 devices: " "$(units=cores answer_lines | sed -n 1p | grep -o '^mlp, 2 devices: ')"
{
    head -n 1 "$out/summary.csv"
    row dp mlp 2 0 23 24 25 scatter=0.1 replicate=4 forward=5 gather=0.4 backward=10 reduce=4.5
    row ddp mlp 2 0 15 16 17 forward=5 backward=10 exposed=1
} >"$out/summary-link.csv"
awk -f bench/compare/difference.awk "$out/summary-link.csv" >"$out/difference-link.csv"
expect "why" "mlp, 2 devices, why: DP's device 0 sends the weights out and adds the gradients up while no device computes, 2.40 ms \
a step here and 9.00 over the link. DDP's ranks exchange gradients only, all at once and while backward still runs: they still wait for \
0.30 ms of it here and 1.00 over the link." "$(why_line)"
expect "the order of the answer" "mlp, 2 devices: on this machine|mlp, 2 devices: over a link|mlp, 2 devices, why|mlp, 4 devices: on \
this machine|convnet, 2 devices: on this machine|convnet, 4 devices: on this machine" \
    "$(link_text="a link" units=cores answer_lines | grep -oE '^[^:]*(: (on this machine|over a link))?' | paste -sd '|' -)"
sed -i 's/^\(dp,mlp,2,1\),0/\1,1/' "$out/summary-link.csv"
expect "why, of a disturbed row" "" "$(why_line)"
rm "$out"/*-link.csv

expect "throughput" "mlp: the fastest is DP on 4 devices with 30000 samples per second, 3.00 times one device;\
 convnet: the fastest is DDP on 4 devices with 120000 samples per second, 3.20 times one device." "$(caption_throughput)"
expect "phases" "mlp on 2 devices: moving data and waiting take 13.4 % of DP's step and 2.0 % of DDP's; convnet on 2\
 devices: moving data and waiting take 0.0 % of DP's step and 0.0 % of DDP's." "$(caption_phases)"
expect "memory" "mlp on 2 devices: device 0 holds 2.00 MB under DP and 2.00 MB under DDP; convnet on 2 devices: device\
 0 holds 2.00 MB under DP and 2.00 MB under DDP." "$(caption_memory)"
expect "speed-ups" "3.20 disturbed" "$(source bench/compare/tables.sh && sed 's/^\(strategy.*\)/\1,peak_bytes_other,moved_bytes_per_step/
    2,$s/$/,1,1/' "$out/summary.csv" >"$out/s" && mv "$out/s" "$out/summary.csv" && speed_rows |
    awk -F'\t' '$1 == "convnet" && $3 == 4 { print $7 }' | sort | paste -sd ' ' -)"
printf 'step,single:1,dp:2,ddp:2\n0,2.5,2.5,2.5\n1,2.0,2.001,1.998\n' >"$out/plots/loss-mlp.csv"
expect "loss" "mlp: the loss differs from one device's by at most 2.0e-03, at step 1 of 1." "$(caption_loss)"
printf 'from_row,from_ms,to_row,to_ms\n3,6,4,6.1\n3,9,4,9.2\n5,5,6,7\n' >"$out/plots/arrows.csv"
printf 'row,begin_ms,end_ms,phase,span,bucket\n1,0,99,backward,backward,-1\n3,5,10,backward,backward,-1\n' \
    >"$out/plots/timeline.csv"
expect "timeline" "The first of DDP's 2 buckets is ready after 20 % of the backward pass." "$(caption_timeline)"

# The optimizer divided over the ranks, beside DDP: with times, disturbed, and without.
mkdir "$out/zero"
{
    echo strategy,model,world_size,timed,disturbed,peak_bytes_device0,step_ms_p50,exposed_ms,optimizer_ms
    echo ddp,gpt,2,1,0,21.5e6,48,1,3
    echo ddp,gpt,4,1,0,20e6,50,1,3
    echo ddp,gpt,8,0,0,20e6,,,
    echo zero1,gpt,2,1,0,18.25e6,46.5,0.6,2
    echo zero1,gpt,4,1,1,17e6,50,1,3
    echo zero1,gpt,8,0,0,16e6,,,
} >"$out/zero/summary.csv"
divided() { echo "gpt, $1 devices: with the optimizer divided (ZeRO-1) a rank holds $2 MB and DDP's $3, $4 MB less$5."; }
expect "ZeRO-1" "$(divided 2 18.25 21.50 3.25 "; a step takes 46.50 ms and DDP's 48.00, waiting for gradients and stepping 2.60\
 and 4.00, 0.65 times")
$(divided 4 17.00 20.00 3.00 '; times were disturbed by other work, no conclusion')
$(divided 8 16.00 20.00 4.00 '')" "$(out=$out/zero && zero_lines)"
expect "no ZeRO-1" "" "$(zero_lines)"

# Disturbed rows take part in no sentence.
sed -i '2,$s/^\([a-z]*,[a-z]*,[0-9],1\),0/\1,1/' "$out/summary.csv" "$out"/plots/{mlp,convnet}.csv
compare_phases
for figure in difference throughput phases; do
    expect "$figure, disturbed" "mlp: disturbed; convnet: disturbed." "$("caption_$figure")"
done
expect "answers, disturbed" "" "$(say "$out/difference.csv" | grep -v 'no conclusion' || true)"

# ---- what is disturbed ---------------------------------------------------------------------------------------
source bench/compare/disturbed.sh
kind=cpu threads=0
probed() { # NAME BEFORE AFTER: a run between two probes
    mkdir -p "$out/runs/$1"
    printf 'threads,gflops,triad_gbps\n%s\n%s\n' "$threads,$2" "$threads,$3" >"$out/runs/$1/probe.csv"
    touch "$out/runs/$1/steps.csv"
}
for repeat in 1 2 3; do probed speed-mlp-dp-2-$repeat 100,20 98,21; done
probed speed-mlp-ddp-2-1 101,19 100,20
probed speed-mlp-ddp-2-2 100,20 79,20 # fewer products afterwards
probed speed-mlp-ddp-2-3 100,15 100,20 # less memory before
probed speed-mlp-dp-4-1 100,20 130,20 # faster than all others
for repeat in 1 2; do threads=1 probed speed-mlp-single-1-$repeat 60,12 61,12; done # of one core
threads=1 probed speed-mlp-single-1-3 30,12 60,12
expect "the usual probe" "101 21" "$(usual_probe 0 | tr '\t' ' ')"
expect "the usual probe of one core" "61 12" "$(usual_probe 1 | tr '\t' ' ')"
disturbed_runs >"$out/disturbed.txt"
expect "disturbed runs" "speed-mlp-ddp-2-2 speed-mlp-ddp-2-3 speed-mlp-dp-4-1 speed-mlp-single-1-3" "$(sort "$out/disturbed.txt" | paste -sd ' ' -)"
counted() { undisturbed_of "$1" | sed 's|.*/\(speed[^/]*\)/.*|\1|' | paste -sd ' ' -; }
expect "all count" "speed-mlp-dp-2-1 speed-mlp-dp-2-2 speed-mlp-dp-2-3" "$(counted speed-mlp-dp-2)"
expect "most are disturbed" "disturbed speed-mlp-ddp-2-1 speed-mlp-ddp-2-2 speed-mlp-ddp-2-3" "$(counted speed-mlp-ddp-2)"
sed -i /ddp-2-2/d "$out/disturbed.txt"
expect "one is left out" "speed-mlp-ddp-2-1 speed-mlp-ddp-2-2" "$(counted speed-mlp-ddp-2)"

# What is made once more: what a series lacks; and when none lacks any, all of one that lies far apart.
warm_up=0
step_times='print "step_ms,samples_per_s" extra; for (i = 0; i < 6; i++) print ms ",500" zeros'
steps_of() { # RUN MS: its six steps took so long
    awk -v ms="$2" -v extra="$(awk -v header=1 -f bench/compare/summarize.awk | tr , '\n' | grep '_ms$' |
        sed 's/^/,/' | tr -d '\n')" -v zeros="$(printf ',0%.0s' {1..15})" "BEGIN { $step_times }" >"$out/runs/$1/steps.csv"
}
for run in speed-mlp-dp-2-{1,2,3} speed-mlp-ddp-2-{1,2,3} speed-mlp-dp-4-1 speed-mlp-single-1-{1,2,3}; do steps_of $run 10; done
printf '%s\n' speed-mlp-ddp-2-{2,3} speed-mlp-dp-2-1 >"$out/disturbed.txt"
steps_of speed-mlp-dp-2-2 13
expect "what a series lacks" "speed-mlp-ddp-2-2 speed-mlp-ddp-2-3" "$(runs_to_repeat | paste -sd ' ' -)"
echo speed-mlp-dp-2-1 >"$out/disturbed.txt"
expect "what lies far apart" "speed-mlp-dp-2-1 speed-mlp-dp-2-2 speed-mlp-dp-2-3" "$(runs_to_repeat | paste -sd ' ' -)"
steps_of speed-mlp-dp-2-2 12
expect "nothing" "" "$(runs_to_repeat)"

# What stayed disturbed makes the row of summary.csv so, however alike its steps are.
printf 'step_ms,samples_per_s%s\n' "$(awk -v header=1 -f bench/compare/summarize.awk | tr , '\n' |
    grep '_ms$' | sed 's/^/,/' | tr -d '\n')" >"$out/steps.csv"
for ((step = 0; step < 6; step++)); do echo "2,500$(printf ',0.1%.0s' {1..15})" >>"$out/steps.csv"; done
last_field() { awk -v skip=2 -v facts="$1" -f bench/compare/summarize.awk "$out/steps.csv" | sed 's/.*,//'; }
expect "an undisturbed row" 0 "$(last_field strategy=dp)"
expect "a disturbed row" 1 "$(last_field strategy=dp,disturbed=1)"

# ---- overlap and buckets --------------------------------------------------------------------------------------
source bench/compare/link.sh
timeline_model="the traced network"
source bench/compare/tables.sh
: >"$out/disturbed.txt"
# Alone: backward 10, buckets of 3, 3 and 2. Ready at 2, 8 and 10 of 10: they have moved at 5, 11 and 13, so that
# 3 of 8 stay exposed at least. 4 were: hidden 4 of 5. Backward took 20, and twice the times, beside communication.
printf 'bucket,ready_ms,moving_ms\n0,10,3\n1,10,3\n2,10,2\nbackward,10,\nexposed,8,\nskew,0,\n' \
    >"$out/plots/overlap-slow-serial.csv"
printf 'bucket,ready_ms,moving_ms\n0,4,9\n1,16,9\n2,20,9\nbackward,20,\nexposed,4,\nskew,0,\n' \
    >"$out/plots/overlap-slow-overlapped.csv"
expect "overlap" "x 8.00 5.00 4.00 80 % 2.00" "$(overlap_row x slow | tr '\t' ' ')"
# Nothing is exposed, in memory 4.5 of the 5 that can be hidden are, and the run over the fast link was disturbed.
for part in serial overlapped; do
    sed 's/^exposed,.*/exposed,0,/' "$out/plots/overlap-slow-$part.csv" >"$out/plots/overlap-fast-$part.csv"
    sed 's/^exposed,.*/exposed,3.5,/' "$out/plots/overlap-slow-$part.csv" >"$out/plots/overlap-memory-$part.csv"
done
expect "overlap of more than can be" "x 8.00 5.00 5.00 100 % 2.00" "$(overlap_row x fast | tr '\t' ' ')"
echo overlap-fast-serial >"$out/disturbed.txt"
link_text="an emulated link of 10 Gbit/s and 20 us" fast_text="an emulated link of 100 Gbit/s and 3 us"
expect "overlap, disturbed" "x - - - disturbed -" "$(overlap_row x fast | tr '\t' ' ')"
meanwhile="Meanwhile the backward pass takes 2.00 times as long as alone."
expect "overlap, in sentences" "- In shared memory overlap hides 4.50 of the 5.00 ms that can be hidden, 90 %. The aim of 90 % is\
 reached. $meanwhile
- Over an emulated link of 100 Gbit/s and 3 us: disturbed by other work; no conclusion.
- Over an emulated link of 10 Gbit/s and 20 us overlap hides 4.00 of the 5.00 ms that can be hidden, 80 %. The aim of 90 %\
 is not reached. $meanwhile" "$(overlap_sentences)"

# A trace of two steps to warm up and one that counts: rank 1 comes 0.2 ms after rank 0, and both move for 2.5 ms, until 0.5 ms
# after rank 1 has ended its backward pass, 0.3 ms after rank 0.
for step in 0 1 2; do
    t=$((step * 10000))
    echo "{\"ph\": \"X\", \"name\": \"backward\", \"pid\": 0, \"tid\": 0, \"ts\": $((t + 1000)), \"dur\": 4000, \"args\": {\"number\": $step}},"
    echo "{\"ph\": \"X\", \"name\": \"backward\", \"pid\": 1, \"tid\": 0, \"ts\": $((t + 1000)), \"dur\": 4300, \"args\": {\"number\": $step}},"
    echo "{\"ph\": \"i\", \"name\": \"bucket is ready\", \"pid\": 0, \"tid\": 0, \"ts\": $((t + 3000)), \"args\": {\"bucket\": 0}},"
    echo "{\"ph\": \"X\", \"name\": \"all_reduce\", \"pid\": 0, \"tid\": 1, \"ts\": $((t + 3100)), \"dur\": 2700, \"args\": {\"number\": $((50 + step)), \"bucket\": 0}},"
    echo "{\"ph\": \"X\", \"name\": \"all_reduce\", \"pid\": 1, \"tid\": 1, \"ts\": $((t + 3300)), \"dur\": 2500, \"args\": {\"number\": $((50 + step)), \"bucket\": 0}},"
done >"$out/trace.json"
expect "a trace" "bucket,ready_ms,moving_ms 0,2.0000,2.5000 backward,4.0000, exposed,0.5000, skew,0.3000," \
    "$(awk -f bench/compare/trace.awk -f bench/compare/overlap.awk "$out/trace.json" | paste -sd ' ' -)"

# buckets MS...: the steps with caps of 0, 1, 4 and 25 MB, half a millisecond between median and quartile; 4 is disturbed.
buckets() {
    local cap position=0
    echo position,cap_mb,step_ms_p25,step_ms_p50,step_ms_p75,disturbed
    for cap in 0 1 4 25; do
        echo "$((++position)),$cap,$(awk -v ms="$1" 'BEGIN { print ms - 0.5 "," ms "," ms + 0.5 }'),$((cap == 4))"
        shift
    done
}
sentence="Over an emulated link of 10 Gbit/s and 20 us a step is shortest with buckets of"
no_u="The curve is no U: not both ends lie above its lowest point with quartiles apart."
expect "buckets" "$sentence 1 MB, 10.00 ms; with 0 MB it takes 20 % more; with 25 MB it takes 30 % more. The curve is a\
 U: both ends lie above its lowest point, with quartiles apart." "$(buckets 12 10 5 13 >"$out/plots/buckets.csv" && caption_buckets)"
expect "buckets, a tie" "$sentence 1 MB, 10.00 ms; with 0 MB it takes 4 % more; with 25 MB it takes 30 % more. $no_u" \
    "$(buckets 10.4 10 5 13 >"$out/plots/buckets.csv" && caption_buckets)"
expect "buckets, quartiles that overlap" "$sentence 1 MB, 10.00 ms; with 0 MB it takes 9 % more; with 25 MB it takes 30 % more. $no_u" \
    "$(buckets 10.9 10 5 13 >"$out/plots/buckets.csv" && caption_buckets)"
expect "buckets, quartiles apart" 1 "$(buckets 11.1 10 5 13 >"$out/plots/buckets.csv" && caption_buckets | grep -c 'The curve is a U')"
expect "buckets, the longer the better" "$sentence 25 MB, 8.00 ms; with 0 MB it takes 50 % more. $no_u" \
    "$(buckets 12 10 5 8 >"$out/plots/buckets.csv" && caption_buckets)"
expect "buckets, the shorter the better" "$sentence 0 MB, 8.00 ms; with 25 MB it takes 50 % more. $no_u" \
    "$(buckets 8 10 5 12 >"$out/plots/buckets.csv" && caption_buckets)"
expect "a link is said to be emulated" "a,b,emulated_link 1,2,10 Gbit/s and 20 us" \
    "$(printf 'a,b\n1,2\n' | with_link "$link_text" | paste -sd ' ' -)"

# 9 MB more at 1 Gbit/s are 72 ms; the step grew by 75.6.
growth() { printf 'world_size,step_ms_p50,moved_bytes_per_step,disturbed\n2,80,9000000,0\n4,%s,18000000,%d\n' "$2" "$1" >"$out/growth.csv"; }
growth 0 155.6
expect "growth" "Over an emulated link of 1 Gbit/s, DP takes 80.0 ms per step on 2 devices and 155.6 on 4: 75.6 ms more.\
 Device 0 moves 9.00 MB more, one device after the other, which takes 72.0 ms: the step grows by 105 % of that,\
 so the bytes predict it within 10 %." "$(growth_text)"
for ms in 144.7 159.3; do # 90 % and 110 % are 144.8 and 159.2
    growth 0 $ms
    expect "growth to $ms" "so the bytes do not predict it within 10 %." "$(growth_text | sed 's/.*that, //')"
done
growth 1 155.6
expect "growth, disturbed" "How DP grows with the number of devices: disturbed." "$(growth_text)"

# ---- why is it slow? -----------------------------------------------------------------------------------------
# One device computes 30 ms, so that 15 are one of two's: DP takes 18, DDP 16.5. DDP moves 6 MB in 3 ms.
has_link() { true; }
models=mlp
{
    echo "strategy,world_size,disturbed,$(printf '%s_ms,' $phases)step_ms_p50,communication_ms,moved_bytes_per_step"
    #    data scatter replicate forward gather loss backward reduce exposed optimizer other
    echo "single,1,0,0,0,0,10,0,1,19,0,0,1,0,31,0,0"
    echo "dp,2,0,0.1,0.2,0.3,6,0.4,1,11,0.5,0,1.1,0.05,21,0,5e6"
    echo "ddp,2,0,0.15,0,0,5.5,0,1,10,0,0.7,1.2,0.25,19,3,6e6"
    echo "dp,4,1,9,9,9,9,9,9,9,9,9,9,9,99,0,1e6"
} >"$out/plots/mlp.csv"
sed -i 's/^skew,.*/skew,0.35,/' "$out/plots/overlap-memory-overlapped.csv"
: >"$out/disturbed.txt"
expect "causes" "cause|what was measured (mlp, 2 devices)|here
compute|forward, loss and backward: one device's, shared by 2|15.00 ms
compute|the same of DP, and its ratio to that|18.00 ms, 1.20
compute|the same of DDP, and its ratio to that|16.50 ms, 1.10
exposed communication|DP: scatter, replicate, gather, reduce|1.40 ms
exposed communication|DDP: what backward did not hide|0.70 ms
host|taking the batch, and between the phases: of DP, of DDP|0.15, 0.40 ms
replicated work|the optimizer, as long on N devices as on one: of DP, of DDP|1.10, 1.20 ms
memory bandwidth|bytes that DDP's all-reduces move, and how fast|6.00 MB, 2.0 GB/s
memory bandwidth|a pass through memory by all cores (the probe)|21.0 GB/s
imbalance|how far apart two ranks end their backward passes (median; the traced network)|0.35 ms" "$(cause_rows | tr '\t' '|')"
expect "their figures stand to the right" "|---|---|---:|" "$(cause_rows | markdown_table | sed -n 2p)"
sed -i 's/^ddp,2,0/ddp,2,1/' "$out/plots/mlp.csv"
echo overlap-memory-overlapped >"$out/disturbed.txt"
expect "causes, disturbed" "all|the runs of this model|disturbed
memory bandwidth|a pass through memory by all cores (the probe)|21.0 GB/s" "$(cause_rows | tr '\t' '|' | sed 1d)"
html=$(cause_rows | markdown_table | awk -v fragment=x -f bench/compare/markdown.awk)
expect "only what was disturbed is grey" '<tr class="disturbed"><td>all</td>' \
    "$(grep -o '<tr class="disturbed"><td>[^<]*</td>' <<<"$html")"
expect "grey has a colour of its own" 1 "$(grep -c '^\.disturbed { color: var(--grey) }' bench/compare/page.css)"

# ---- the runs that a row is made of ---------------------------------------------------------------------------
source bench/compare/section.sh
source bench/compare/report.sh
mkdir "$out/rows"
kept() { # STRATEGY,WORLD,REPEATS,TIMED,DISTURBED...: the sentences of a summary with these rows
    local line
    {
        echo model,strategy,world_size,repeats,timed,disturbed,spread
        for line; do echo "mlp,$line,0.3"; done
    } >"$out/rows/summary.csv"
    (
        out=$out/rows repeats=5 kind=other
        runs_text
        speed_remarks
    ) | paste -sd ' ' -
}
expect "all runs are kept" "Every row: 5 runs, - Nothing disturbed the machine noticeably." "$(kept dp,2,5,1,0 ddp,2,5,1,0)"
expect "one is dropped" "Every row: 5 runs, less the disturbed ones (mlp, DP, 2 devices: 4 of 5 kept), - Something else used \
the machine during some runs, which were dropped: mlp, DP, 2 devices: 4 of 5 kept." "$(kept dp,2,4,1,0 ddp,2,5,1,0)"
expect "of two rows" "Every row: 5 runs, less the disturbed ones (mlp, SINGLE, 1 device: 3 of 5 kept; mlp, DDP, 4 devices: 4 \
of 5 kept)," "$(kept single,1,3,1,0 dp,2,5,1,0 ddp,4,4,1,0 | grep -o '^[^-]*,')"
expect "a row that stays disturbed" "Every row: 5 runs, - **Disturbed.** Something else used the machine during these, and \
they take part in no   conclusion: mlp dp:2 (its runs lie 30 % apart)." "$(kept dp,2,5,1,1 ddp,2,5,1,0)"
expect "rows without times" "Every row: 5 runs, - Nothing disturbed the machine noticeably." "$(kept dp,2,5,1,0 dp,8,0,0,0)"

# ---- the machine ---------------------------------------------------------------------------------------------
mkdir -p "$out/build/bin" "$out/runs/a"
printf 'CMAKE_C_FLAGS:STRING=-g\nCMAKE_C_FLAGS_RELEASE:STRING=-O3 -DNDEBUG\n' >"$out/build/CMakeCache.txt"
printf ' "compiler": "12.2.0",\n "blas": "OpenBLAS 0.3 Zen",\n' >"$out/runs/a/config.json"
bin=$out/build/bin load="0.10 0.20 0.30" asked="bench/compare.sh --quick"
facts=$(env -i PATH="$PATH" OPENBLAS_CORETYPE=Zen OMP_NUM_THREADS=1 bash -c "$(declare -f machine_lines machine_facts \
    a_record count_cores commit_line json); $(declare -p bin load asked out kind); machine_lines")
expect "what is recorded of a machine" "Processor Memory System Compiler Flags Cores Variables Commit BLAS Command" \
    "$(sed -n 's/^- \([A-Z][A-Za-z]*\)[ :].*/\1/p' <<<"$facts" | paste -sd ' ' -)"
expect "the compiler, the library, the flags, the variables and the command" "- Compiler: gcc 12.2.0, Release
- Flags: -g -O3 -DNDEBUG
- Variables that change the libraries: OMP_NUM_THREADS=1 OPENBLAS_CORETYPE=Zen
- BLAS: OpenBLAS 0.3 Zen
- Command: \`bench/compare.sh --quick\`" "$(grep -E '^- (Compiler|BLAS|Flags|Variables|Command)' <<<"$facts")"
expect "the cores, the governor and the load" 1 \
    "$(grep -cE '^- Cores: [0-9,-]+, governor .+, load at the beginning: 0\.10 0\.20 0\.30$' <<<"$facts")"

echo "report_sentences: $checks checks, $failures failures"
[[ $failures == 0 ]]
