#!/usr/bin/env bash
# scaling.sh: the time of DP's and DDP's step by link, by number of devices and by batch, in five parts:
#
#   links    a step on two devices over emulated links of 1 to 100 Gbit/s, and DDP's with fp16 or PowerSGD as its
#            communication hook; each saves time below some bandwidth
#   devices  a step on one and more devices over one link, with a constant global batch (strong scaling) and with constant
#            rows per device (weak scaling); devices beyond the cores share them
#   batches  the largest batch that fits into --memory-mb on device 0 under DP, DDP and ZeRO-1, found by --dry-run; that
#            batch and the next are then trained
#   memory   a device's memory for gpt-small, gpt2 and gpt2-xl on 2, 4 and 8 devices under all five strategies, by
#            --dry-run, compared with formulas; gpt-small is also trained, and the bytes that DDP and FSDP send are counted
#   sharded  gpt-small's step on two devices, FSDP's and DDP's alternately, through memory and over a link of 10 Gbit/s,
#            where the gathers that overlap with computation are counted, without and with --unshard-in-step
#
# Writes scaling.csv, scaling-batches.csv, scaling-memory.csv, scaling-traffic.csv, scaling-sharded.csv, four figures, section.md and
# section.html, which bench/compare.sh's report brings in. The exit status is 0 only if what was trained took the dry
# runs' bytes, and memory and traffic are within 3 % of the formulas; times are measured, not judged.
# The report's sentences about the numbers: bench/report/scaling.py.
#
# usage: bench/scaling.sh [options]
#   --quick          one round of a few small steps: tries the command, and measures no speed
#   --only PARTS     some of: links devices batches memory sharded (default: all five)
#   --links LIST     Gbit/s of the part links (default: 1 2.5 5 10 25 50 100); a message's latency is 20 us
#   --worlds LIST    numbers of devices of the part devices, from 2 (default: 2 3 4)
#   --memory-mb N    millions of bytes on device 0 in the part batches (default: 128; with --quick 1)
#   --rounds N       how often each step is measured (default: 4)
#   --patience SECONDS  how long disturbed runs are made once more (default: 60; with --quick 0)
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/compare/begin.sh"

rounds=4 memory_mb="" out=bench/out-scaling
only="links devices batches memory sharded" links="1 2.5 5 10 25 50 100" worlds="2 3 4"
read_options bench/scaling.sh "$@"
patience=${patience:-$((quick ? 0 : 60))} memory_mb=${memory_mb:-$((quick ? 1 : 128))}
need_words --only "$only" "links|devices|batches|memory|sharded"
for gbit in $links; do need_link --links "$gbit,20"; done
[[ -n ${links// /} ]] || fail_usage "--links: expected at least one"
need_numbers --worlds "$worlds" 2 "$(most_devices)"
need_number --memory-mb "$memory_mb" 1 100000
get_ready train_single train_dp train_ddp train_fsdp ddprun bench_probe
middle=10 steps=35 batch=300 hidden=1024,1024 most=2048
gpt="--layers 4 --heads 4 --embedding 256 --context 32"
sizes="gpt-small gpt2 gpt2-xl" counted="2 4 8" # models and numbers of devices of the part memory
texts=24 # rows of a step of the part sharded
[[ $quick == 0 ]] || { rounds=1 steps=8 batch=60 hidden=128,128 gpt="--layers 1 --heads 2 --embedding 32 --context 16"
    sizes="gpt-small gpt2" counted="2 4" texts=8; }
unset RANK WORLD_SIZE

open_section scaling.csv scaling-{batches,memory,traffic,sharded}.csv

# Prints the steps to measure, one per line: STRATEGY-DEVICES-BATCH-GBIT. A step of both parts is measured once.
configurations() {
    local gbit world
    {
        [[ $only != *links* ]] || for gbit in $links; do printf '%s\n' {dp,ddp,fp16,powersgd}-2-"$batch-$gbit"; done
        [[ $only != *devices* ]] || for world in $worlds; do
            printf '%s\n' single-1-{"$batch",$((batch / 2))}-none {dp,ddp}-"$world"-{"$batch",$((batch / 2 * world))}-$middle
        done
    } | awk '!seen[$0]++'
}

# measure CONFIGURATION ROUND: one run between two probes.
measure() {
    local strategy world rows gbit name=step-$1-$2
    local -a command
    IFS=- read -r strategy world rows gbit <<<"$1"
    start "$strategy" "$world"
    case $strategy in
    fp16) command+=(--comm-hook fp16) ;;
    powersgd) command+=(--comm-hook powersgd --powersgd-start 2) ;;
    esac
    [[ $gbit == none ]] || command+=(--link "$gbit,20")
    # shellcheck disable=SC2046 # options are words
    timed_run "$name" "${command[@]}" $(network_of mlp) --data synthetic:1x8x8:10@3600 --drop-last \
        --global-batch "$rows" --steps $steps --no-eval --log-every 1 --out "$out/runs/$name"
}

# hold NAME STRATEGY DEVICES OPTION...: makes a run of a gpt whose memory is counted
hold() {
    local -a command
    start "$2" "$3"
    [[ $2 != fsdp-whole ]] || command+=(--no-reshard-after-forward)
    run_once "$1" "${command[@]}" --data text --optimizer adamw "${@:4}"
}

# bytes_of STRATEGY BATCH: prints device 0's bytes of each kind and the peak from its dry run, separated by commas.
bytes_of() {
    sed -n 's/^[a-z_]*_bytes=\([0-9]*\).*/\1/p' "$out/runs/dry-$1-$2/output.txt" | sed -n 1,7p | paste -sd , -
}

# find_largest STRATEGY: bisects the batch by dry runs until `fits` fits and `exceeds`, one row more per device, does
# not; then trains both. Prints rows of scaling-batches.csv.
find_largest() {
    local rows computed fits=0 exceeds=$((most + 2))
    while ((exceeds - fits > 2)); do
        rows=$(((fits + exceeds) / 4 * 2)) # even
        # shellcheck disable=SC2086 # options are words
        hold "dry-$1-$rows" "$1" 2 --model gpt $gpt --drop-last --global-batch "$rows" --dry-run
        [[ $(bytes_of "$1" "$rows" | cut -d , -f 7) -le $((memory_mb * 1000000)) ]] && fits=$rows || exceeds=$rows
    done
    ((fits > 0 && fits < most)) ||
        fail_usage "--memory-mb $memory_mb: under $1, $( ((fits)) && echo "$most rows fit" || echo "2 rows do not fit") -- try another"
    for rows in $fits $exceeds; do
        # shellcheck disable=SC2086 # options are words
        hold "run-$1-$rows" "$1" 2 --model gpt $gpt --drop-last --global-batch "$rows" --steps 2 --no-eval --out "$out/runs/run-$1-$rows"
        computed=$(json peak_bytes_device0 "$out/runs/run-$1-$rows/summary.json")
        echo "$1,$rows,$((rows == fits)),$(bytes_of "$1" "$rows"),$computed" >>"$out/scaling-batches.csv"
    done
}

# hold_model MODEL STRATEGY DEVICES HOW OPTION...: makes the run hold-MODEL-STRATEGY-DEVICES-HOW, with equally many rows
# on each device.
hold_model() {
    local rows=1 vocabulary="--vocabulary 50257"
    [[ $1 != gpt-small ]] || rows=4 vocabulary=
    # shellcheck disable=SC2086 # options are words
    hold "hold-$1-$2-$3-$4" "$2" "$3" --model "$1" --drop-last --global-batch $((rows * $3)) $vocabulary "${@:5}"
}

# train_small STRATEGY DEVICES: the same with gpt-small and training.
train_small() {
    hold_model gpt-small "$1" "$2" trained --steps 4 --no-eval --log-every 1000 --out "$out/runs/hold-gpt-small-$1-$2-trained"
}

# Measures each device's memory by dry runs. gpt-small is trained, which also counts the bytes that a step sends.
hold_models() {
    local model strategy world
    for model in $sizes; do
        echo "memory of $model" >&2
        run_once "summary-$model" "$bin/train_single" --model "$model" --data text --summary \
            $([[ $model == gpt-small ]] || echo --vocabulary 50257)
        for world in 1 $counted; do
            for strategy in $( ((world == 1)) && echo single || echo dp ddp zero1 fsdp); do
                hold_model "$model" "$strategy" "$world" dry --dry-run
                [[ $model != gpt-small ]] || train_small "$strategy" "$world"
            done
        done
    done
    for world in $counted; do train_small fsdp-whole "$world"; done
}

# shard NAME STRATEGY OPTION...: trains gpt-small on two ranks
shard() {
    local -a command
    start "$2" 2
    timed_run "$1" "${command[@]}" --model gpt-small --data text --drop-last --optimizer adamw --lr 1e-3 \
        --global-batch $texts --steps $steps --no-eval --log-every 1 --out "$out/runs/$1" "${@:3}"
}

# shard_round ROUND: makes the runs of the part sharded
shard_round() {
    shard "shard-ddp-$1" ddp
    shard "shard-fsdp-$1" fsdp
    shard "shard-link-$1" fsdp --link $middle,20 --trace "$out/runs/shard-link-$1/trace.json"
    shard "shard-early-$1" fsdp --link $middle,20 --trace "$out/runs/shard-early-$1/trace.json" --unshard-in-step
}

take_round() { # PARTS ROUND
    local one
    [[ $1 != *sharded* ]] || shard_round "$2"
    for one in "${wanted[@]}"; do measure "$one" "$2"; done
}

all_rounds() { each_round take_round "$only"; }

mapfile -t wanted < <(configurations)
if [[ $only == *batches* ]]; then
    echo "the largest batch that fits into $memory_mb MB" >&2
    echo strategy batch fits {weights,gradients,optimizer,batch,logits,activations,peak,computed}_bytes | tr ' ' , \
        >"$out/scaling-batches.csv"
    for strategy in dp ddp zero1; do find_largest $strategy; done
fi
[[ $only != *memory* ]] || hold_models
make_all all_rounds
write_facts "quick $quick" "rounds $rounds" "configurations ${wanted[*]}" "batch $batch" "worlds $worlds" "middle $middle" \
    "hidden $hidden" "memory $memory_mb" "sizes $([[ $only != *memory* ]] || echo "$sizes")" "counted $counted" \
    "sharded $([[ $only != *sharded* ]] || echo $rounds)" "texts $texts" "cores $(count_cores)" --
write_report scaling
status=0
[[ $only != *batches* ]] || awk -F, '$10 != $11 && NR > 1 { exit 1 }' "$out/scaling-batches.csv" || status=1
[[ $only != *memory* ]] || ! grep -q ',0$' "$out"/scaling-{memory,traffic}.csv || status=1
exit $status
