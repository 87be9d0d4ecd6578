# measure.sh: makes the runs whose speed, loss and timeline are shown, and writes their CSV files. Sourced by compare.sh
# after runs.sh; uses its models, worlds, repeats, measured_steps, traced_steps and epochs.

warm_up=2 # first steps of a run, which are not measured
cores=$(nproc)

# Prints a model's options for speed measurements. The batch is divisible by 1 to 6 devices and divides the epoch, so
# that all steps are equal.
speed_options() {
    case $1 in
    mlp) echo --global-batch 300 --hidden 1024,1024 ;;
    resnet20) echo --global-batch 60 ;;
    gpt*) echo --global-batch 12 --drop-last --optimizer adamw --lr 1e-3 ;;
    *) echo --global-batch 300 ;;
    esac
}

# configurations: prints "strategy world" lines, in the order of the figures.
configurations() {
    local world
    echo single 1
    for world in $worlds; do echo dp "$world"; done
    for world in $worlds; do echo ddp "$world"; done
    [[ -z $mine ]] || for world in $worlds; do echo mine "$world"; done
}

# speed_configurations: prints "model strategy world" lines of the measured runs: also fully sharded training (fsdp)
# and, if the optimizer has state, DDP with the optimizer sharded over its ranks (zero1, ZeRO-1).
speed_configurations() {
    local model world
    for model in $models; do
        {
            configurations
            [[ $(speed_options "$model") != *adamw* ]] || for world in $worlds; do echo zero1 "$world"; done
            for world in $worlds; do echo fsdp "$world"; done
        } | sed "s/^/$model /"
    done
}

# The repeats are the outer loop, so that a disturbance of the machine affects all strategies alike. A run whose times
# are not shown takes a few steps, for its memory.
measure_speed() {
    local repeat model strategy world
    for ((repeat = 1; repeat <= repeats; repeat++)); do
        begin_section "speed: repeat $repeat of $repeats"
        while read -r model strategy world; do
            is_timed "$world" || [[ $repeat == 1 ]] || continue
            measure_run "speed-$model-$strategy-$world-$repeat"
        done < <(speed_configurations)
    done
    [[ $kind == cpu ]] || measure_phases
}

# measure_run NAME: makes one repeat; its name determines its options.
measure_run() {
    local part model strategy world steps=$measured_steps
    IFS=- read -r part model strategy world _ <<<"$1"
    [[ $part == speed ]] || { between_probes "$1" link_run "$1"; return; }
    [[ $model != resnet20 ]] || steps=$((warm_up + measured_steps / 6))
    is_timed "$world" || steps=$((warm_up + 1))
    between_probes "$1" speed_run "$1" "$strategy" "$world" "$model" --steps "$steps"
}

# speed_run NAME STRATEGY WORLD MODEL OPTION...: trains without evaluation for a speed measurement.
speed_run() {
    # shellcheck disable=SC2046 # the options are words
    train "$1" "$2" "$3" --model "$4" --data "$(data_of "$4")" $(speed_options "$4") "${@:5}" --no-eval --log-every 1 </dev/null
}

# A GPU continues one phase while the host is in the next. With --profile the host waits at the end of each phase: the
# step is slower, and the times of its phases are correct.
measure_phases() {
    local model strategy world
    while read -r model strategy world; do
        ! is_timed "$world" || speed_run "phases-$model-$strategy-$world-1" "$strategy" "$world" \
            "$model" --steps $((warm_up + measured_steps / 6)) --profile
    done < <(speed_configurations)
}

# summary_row MODEL STRATEGY WORLD KIND: prints a row of summary.csv from the runs of that kind.
summary_row() {
    local run=$4-$1-$2-$3 world=$3 first fact facts
    local -a counted=()
    first=$out/runs/$run-1/summary.json
    facts=strategy=$2,model=$1,world_size=$3
    for fact in device backend global_batch peak_bytes_device0 peak_bytes_other moved_bytes_per_step; do
        facts+=,$fact=$(json $fact "$first")
    done
    set --
    ! is_timed "$world" || mapfile -t counted < <(undisturbed_of "$run")
    [[ ${counted[0]:-} != disturbed ]] || { facts+=,disturbed=1 && counted=("${counted[@]:1}"); }
    set -- "${counted[@]}"
    [[ $# == 0 || $kind == cpu ]] || set -- "$@" only_phases=1 "$out/runs/phases-${run#*-}-1/steps.csv"
    awk -v skip=$warm_up -v facts="$facts" -f bench/compare/summarize.awk "$@" </dev/null
}

# summary_rows KIND: reads "model strategy world" lines and prints a table like summary.csv, without failed runs.
summary_rows() {
    local model strategy world
    awk -v header=1 -f bench/compare/summarize.awk
    while read -r model strategy world; do
        has_failed "$strategy" "$1" "$model" "$world" || summary_row "$model" "$strategy" "$world" "$1"
    done
}

# Writes summary.csv and difference.csv from the runs of measure_speed.
summarize() {
    speed_configurations | summary_rows speed >"$out/summary.csv"
    [[ -z $(timed_worlds) ]] || write_differences ""
}

# write_differences PART: writes difference.csv from summary.csv, or with -link that of the slow link; the rows of
# --mine are compared with the strategy that it replaces.
write_differences() {
    awk -f bench/compare/difference.awk "$out/summary$1.csv" >"$out/difference$1.csv"
    [[ -z $mine ]] || awk -v a="$mine_like" -v b=mine -f bench/compare/difference.awk "$out/summary$1.csv" >"$out/difference$1-mine.csv"
}

# Writes repeats.csv: the median step of every run of measure_speed, for bench/regress.sh.
list_repeats() {
    local model strategy world repeat run
    echo model,strategy,world_size,repeat,step_ms_p50,disturbed
    while read -r model strategy world; do
        is_timed "$world" && ! has_failed "$strategy" speed "$model" "$world" || continue
        for ((repeat = 1; repeat <= repeats; repeat++)); do
            run=speed-$model-$strategy-$world-$repeat
            awk -v skip=$warm_up -v facts="" -f bench/compare/summarize.awk "$out/runs/$run/steps.csv" |
                awk -F, -v what="$model,$strategy,$world,$repeat" -v disturbed="$(grep -cxF "$run" "$out/disturbed.txt" || true)" \
                    '{ printf "%s,%s,%d\n", what, $9, disturbed }'
        done
    done < <(speed_configurations)
}

# Prints the models that are trained on the digits.
curve_models() {
    local model
    for model in $models; do [[ $(data_of "$model") != digits ]] || echo "$model"; done
}

# Makes longer runs on the digits with evaluation, for the loss curves and the test accuracies.
train_curves() {
    local model strategy world
    for model in $(curve_models); do
        begin_section "loss curves: $model, $epochs epochs"
        while read -r strategy world; do
            train "curve-$model-$strategy-$world" "$strategy" "$world" --model "$model" --data digits \
                --epochs "$epochs" --log-every 1 </dev/null
        done < <(configurations)
    done
}

# Traces one step of DP, of DDP and of FSDP on two devices, through memory and over the slow link, of a network so deep
# that its first buckets are full early in the backward pass.
timeline_model="mlp-8x512, buckets of 1 MB"
trace_steps() {
    local where strategy
    is_timed 2 || return 0
    begin_section "timeline: $timeline_model"
    for where in "" link-; do
        [[ -z $where ]] || has_link || continue
        for strategy in dp ddp fsdp ${mine:+mine}; do measure_run "timeline-$where$strategy"; done
    done
}
