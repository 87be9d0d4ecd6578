# measure.sh: makes the runs of promises.sh, from which bench/report/promises.py makes prices.csv and counts.csv.
# Sourced after compare/begin.sh; uses out, bin, models, rounds, steps, batch and hidden.

# Prints the promises: a name, and its options. `plain` is DDP with its defaults; `fsdp` is train_fsdp.
promises_of() {
    cat <<END
plain
noop --comm-hook noop
find-unused --find-unused-parameters
static-graph --static-graph
no-bucket-view --no-gradient-as-bucket-view
no_sync-4 --accumulate-steps 4
fp16 --comm-hook fp16
bf16 --comm-hook bf16
powersgd --comm-hook powersgd --powersgd-start 2
fsdp
END
    [[ $1 != convnet ]] || cat <<END
no-buffers --no-broadcast-buffers
sync-batch-norm --sync-batch-norm
END
}

strategy_of() { # PROMISE
    [[ $1 == fsdp ]] && echo fsdp || echo ddp
}

names_of() { # MODEL
    promises_of "$1" | cut -d ' ' -f 1 | paste -sd ' ' -
}

data=synthetic:1x28x28:10@2048

# job NAME STRATEGY OPTION...: makes a run on two devices, with DP's rows. Each logged step adds an all-reduce of the
# loss, so a run whose collectives are counted sets log_every.
job() {
    local -a command
    start "$2" 2
    run_once "$1" "${command[@]}" --data $data --log-every "${log_every:-1}" --no-eval \
        --out "$out/runs/$1" "${@:3}"
}

# shellcheck disable=SC2046,SC2086 # options are words
time_promises() { # MODEL ROUND
    local name options run
    while read -r name options; do
        run=price-$1-$name-$2
        between_probes "$run" job "$run" "$(strategy_of "$name")" $(network_of "$1") --global-batch $batch --steps $steps $options
    done < <(promises_of "$1")
}

# Counts the collectives of one step of each promise, from its trace; keeps its gradients, whose shapes are in the
# formulas, and the network's summary, for its batch norms.
# shellcheck disable=SC2046,SC2086
trace_promises() {
    local model name options folder
    for model in $models; do
        run_once "summary-$model" "$bin/train_single" $(network_of "$model") --data $data --summary
        while read -r name options; do
            folder=$out/runs/count-$model-$name
            log_every=1000 job "count-$model-$name" "$(strategy_of "$name")" $(network_of "$model") --global-batch 16 --steps 6 \
                --trace "$folder/trace.json" --dump-grads "$folder/gradients" $options
        done < <(promises_of "$model")
    done
}
