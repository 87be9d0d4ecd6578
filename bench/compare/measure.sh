# measure.sh: the runs whose speed, loss and timeline are shown, and the figures drawn from them.
# Sourced by compare.sh after runs.sh; uses its models, worlds, repeats, measured_steps and epochs.

warm_up=2 # steps at the start of a run that do not count
cores=$(nproc)

# How a model trains when its speed is measured: the batch is divisible by 1 to 6 devices, and so is the
# epoch by the batch, so that every step is alike.
speed_options() {
    case $1 in
    mlp) echo --global-batch 300 --hidden 1024,1024 ;;
    resnet20) echo --global-batch 60 ;;
    *) echo --global-batch 300 ;;
    esac
}

# configurations: "strategy world" lines, in the order of the figures.
configurations() {
    local world
    echo single 1
    for world in $worlds; do echo dp "$world"; done
    for world in $worlds; do echo ddp "$world"; done
}

# Repeats are the outer loop, so that a disturbance of the machine meets all strategies alike. A run
# without times shows its memory only, in a few steps.
measure_speed() {
    local repeat model strategy world steps
    for ((repeat = 1; repeat <= repeats; repeat++)); do
        say "speed: repeat $repeat of $repeats"
        for model in $models; do
            while read -r strategy world; do
                steps=$measured_steps
                [[ $model != resnet20 ]] || steps=$((warm_up + measured_steps / 6))
                is_timed "$world" || steps=$((warm_up + 1))
                is_timed "$world" || [[ $repeat == 1 ]] || continue
                speed_run "speed-$model-$strategy-$world-$repeat" "$strategy" "$world" "$model" \
                    --steps "$steps"
            done < <(configurations)
        done
    done
    [[ $kind == cpu ]] || measure_phases
}

# speed_run NAME STRATEGY WORLD MODEL OPTION...
speed_run() {
    local name=$1 strategy=$2 world=$3 model=$4
    shift 4
    # shellcheck disable=SC2046 # the options are words
    train "$name" "$strategy" "$world" --model "$model" --data "$(data_of "$model")" \
        $(speed_options "$model") "$@" --no-eval --log-every 1 </dev/null
}

# A GPU works on while the host is in the next phase. With --profile the host waits at the end of each:
# the step is slower then, and its parts are true.
measure_phases() {
    local model strategy world
    for model in $models; do
        while read -r strategy world; do
            ! is_timed "$world" || speed_run "phases-$model-$strategy-$world-1" "$strategy" "$world" \
                "$model" --steps $((warm_up + measured_steps / 6)) --profile
        done < <(configurations)
    done
}

# A row of summary.csv without times: HEAD TAIL as summarize.awk's.
untimed_row() {
    local times=,,, phases=,,,,,,,,,,
    echo "$1,$times,${2%,*},$phases,${2##*,},1,0,,0"
}

# timed_row RUN HEAD TAIL
timed_row() {
    local -a row=(awk -v skip=$warm_up -v head="$2" -v tail="$3" -f bench/compare/summarize.awk)
    local phases
    if [[ $kind == cpu ]]; then
        "${row[@]}" "$out/runs/speed-$1-"*/steps.csv
    else
        phases=$("${row[@]}" "$out/runs/phases-$1-1/steps.csv" | cut -d , -f 13-23)
        "${row[@]}" "$out/runs/speed-$1-"*/steps.csv |
            awk -F, -v OFS=, -v phases="$phases" '
                { for (i = split(phases, part); i > 0; i--) $(12 + i) = part[i]; print }'
    fi | sed 's/$/,1/'
}

# summary.csv from the runs of measure_speed, and one file per model for the figures.
summarize() {
    local model strategy world first head tail
    local columns=strategy,model,device,backend,world_size,global_batch,samples_per_s_p50
    columns+=,step_ms_p25,step_ms_p50,step_ms_p75,peak_bytes_device0,peak_bytes_other
    columns+=,data_ms,scatter_ms,replicate_ms,forward_ms,gather_ms,loss_ms,backward_ms,reduce_ms
    columns+=,exposed_ms,optimizer_ms,other_ms,moved_bytes_per_step,repeats,steps,spread,timed
    echo $columns >"$out/summary.csv"
    mkdir -p "$out/plots"
    for model in $models; do
        while read -r strategy world; do
            first=$out/runs/speed-$model-$strategy-$world-1/summary.json
            head=$strategy,$model,$(json device "$first"),$(json backend "$first"),$world
            head+=,$(json global_batch "$first")
            tail=$(json peak_bytes_device0 "$first"),$(json peak_bytes_other "$first")
            tail+=,$(json moved_bytes_per_step "$first")
            if is_timed "$world"; then
                timed_row "$model-$strategy-$world" "$head" "$tail"
            else
                untimed_row "$head" "$tail"
            fi >>"$out/summary.csv"
        done < <(configurations)
        awk -F, -v model="$model" 'NR == 1 || ($2 == model && $28)' "$out/summary.csv" \
            >"$out/plots/$model.csv"
    done
}

# The models that learn the digits.
curve_models() {
    local model
    for model in $models; do [[ $(data_of "$model") != digits ]] || echo "$model"; done
}

# Longer runs on the digits, with evaluation: the loss curves and the test accuracies.
train_curves() {
    local model strategy world
    for model in $(curve_models); do
        say "loss curves: $model, $epochs epochs under each strategy"
        while read -r strategy world; do
            train "curve-$model-$strategy-$world" "$strategy" "$world" --model "$model" --data digits \
                --epochs "$epochs" --log-every 1 </dev/null
        done < <(configurations)
    done
}

# One traced step of DP and one of DDP on two devices. GPUs are waited for as in measure_phases.
record_timeline() {
    local row=0 strategy
    is_timed 2 || return 0
    timeline_model=${models%% *}
    say "timeline: $timeline_model"
    echo row,label >"$out/plots/tracks.csv"
    echo row,begin_ms,end_ms,phase,span >"$out/plots/timeline.csv"
    for strategy in dp ddp; do
        # shellcheck disable=SC2046 # the options are words
        train "timeline-$strategy" $strategy 2 --model "$timeline_model" \
            --data "$(data_of "$timeline_model")" $(speed_options "$timeline_model") \
            --steps 20 --no-eval --trace "$out/trace-$strategy.json" \
            $([[ $kind == cpu ]] || echo --profile)
        awk -v row="$row" -v label=${strategy^^} -v tracks="$out/plots/tracks.csv" \
            -f bench/compare/timeline.awk "$out/trace-$strategy.json"* >>"$out/plots/timeline.csv"
        row=$(awk -F, 'END { print $1 + 0.7 }' "$out/plots/tracks.csv") # 0.7: a gap before DDP
    done
}

plot() {
    gnuplot -e "dir='$out'; plots='$root/bench/plots'; $2" "bench/plots/$1.gp"
}

draw() {
    local curves runs steps
    curves=$(curve_models | tr '\n' ' ')
    runs=$(configurations | tr ' ' '-' | tr '\n' ' ')
    [[ -z $(timed_worlds) ]] || draw_speed
    if [[ -n $curves ]]; then
        steps=$(awk 'END { print NR - 1 }' "$out/runs/curve-${curves%% *}-single-1/steps.csv")
        plot loss "models='${curves% }'; runs='${runs% }'; steps=$steps"
    fi
}

draw_speed() {
    local rows step
    plot throughput "models='$models'; worlds='$(timed_worlds)'; cores=$cores; units='$units'"
    plot phases "models='$models'"
    plot memory "models='$models'"
    is_timed 2 || return 0
    rows=$(awk -F, 'END { print $1 }' "$out/plots/tracks.csv")
    step=$(awk -F, 'NR > 1 && $3 > end { end = $3 } END { print end }' "$out/plots/timeline.csv")
    plot timeline "model='$timeline_model'; rows=$rows; end=$step"
}
