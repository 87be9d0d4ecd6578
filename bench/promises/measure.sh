# measure.sh: the runs of promises.sh; bench/report/promises.py makes prices.csv, counts.csv and shapes.csv of them. Sourced
# after compare/begin.sh; uses out, bin, models, rounds, steps, batch, batches and hidden.

splits="1x2 2x1 2x2 2x4" # ranks x threads of each

# What a model trains on here.
model_options() {
    case $1 in
    mlp) echo --model mlp --hidden "$hidden" --data "synthetic:1x28x28:10@2048" ;;
    convnet) echo --model convnet --data "synthetic:1x28x28:10@2048" ;;
    esac
}

# The promises: a name, and the options that give it. `plain` is DDP as it comes; `fsdp` is train_fsdp.
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

names_of() { # MODEL
    promises_of "$1" | cut -d ' ' -f 1 | paste -sd ' ' -
}

# job NAME COMMAND...: makes a run, whose files are in $out/runs/NAME. Each step that is logged costs an all-reduce of
# the loss, so a run whose collectives are counted sets log_every.
job() {
    run_once "$@" --log-every "${log_every:-1}" --no-eval --out "$out/runs/$1" || exit 1
}

# timed_job NAME COMMAND...: the same of a run whose times count, between two probes.
timed_job() {
    between_probes "$1" job "$@"
}

# single_job NAME OPTION...: one device, on the first core, of which the probe is where NAME says "-single-".
# shellcheck disable=SC2046 # a command is words
single_job() {
    timed_job "$1" $(on_first_core) "$bin/train_single" "${@:2}"
}

# ranks_of JOB NAME OPTION...: two ranks, each on its own cores, with the rows that DP gives: of train_ddp, or where NAME says
# "-fsdp-" of train_fsdp.
ranks_of() {
    local program=train_ddp
    [[ $2- != *-fsdp-* ]] || program=train_fsdp
    "$1" "$2" "$bin/ddprun" --bind cores --nproc-per-node 2 "$bin/$program" --sampler blocked "${@:3}"
}

rank_job() { # NAME OPTION...
    ranks_of timed_job "$@"
}

# shellcheck disable=SC2046,SC2086 # options are words
time_promises() { # ROUND
    local model name options
    for model in $models; do
        while read -r name options; do
            rank_job "price-$model-$name-$1" $(model_options "$model") --global-batch $batch --steps $steps $options
        done < <(promises_of "$model")
    done
}

# What two devices cannot do faster than twice: one device with the whole batch and with half of it; two such at
# once, which share nothing but the machine.
# shellcheck disable=SC2046,SC2086
time_limits() { # ROUND
    local half=$((batch / 2))
    single_job "limit-single-whole-$1" $(model_options mlp) --global-batch $batch --steps $steps
    single_job "limit-single-half-$1" $(model_options mlp) --global-batch $half --steps $steps
    between_probes "limit-pair-$1" run_once "limit-pair-$1" env FOLDER="$out/runs/limit-pair-$1" \
        PROGRAM="$bin/train_single" "$bin/ddprun" --bind cores --nproc-per-node 2 \
        sh -c 'exec "$PROGRAM" "$@" --no-eval --log-every 1 --out "$FOLDER/$RANK"' sh \
        $(model_options mlp) --global-batch $half --steps $steps || exit 1
}

# Threads of each rank, which may go to all cores: beyond the cores they take turns. (One rank with one thread is
# limit-single-whole.)
# shellcheck disable=SC2046,SC2086
time_threads() { # ROUND
    local split
    local -a program
    for split in $splits; do
        program=("$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --sampler blocked)
        [[ $split == 2x* ]] || program=("$bin/train_single")
        timed_job "threads-$split-$1" "${program[@]}" $(model_options mlp) --global-batch $batch --steps $steps \
            --threads ${split#*x}
    done
}

# The batch, from where one device wins to where two do.
# shellcheck disable=SC2046,SC2086
time_batches() { # ROUND
    local rows
    for rows in $batches; do
        single_job "batch-single-$rows-$1" $(model_options mlp) --global-batch $rows --steps $steps
        timed_job "batch-dp-$rows-$1" "$bin/train_dp" --devices 2 --bind cores $(model_options mlp) --global-batch $rows \
            --steps $steps
        rank_job "batch-ddp-$rows-$1" $(model_options mlp) --global-batch $rows --steps $steps
    done
}

# Depth against width, with about as many parameters.
shapes="1536 780,780 520,520,520,520 372,372,372,372,372,372,372,372"
# shellcheck disable=SC2086
time_shapes() {
    local sizes
    for sizes in $shapes; do
        rank_job "shape-$sizes" --model mlp --hidden $sizes --data "synthetic:1x28x28:10@2048" \
            --bucket-cap-mb 1 --global-batch $batch --steps $steps --trace "$out/runs/shape-$sizes/trace.json"
    done
}

# A step of each promise whose collectives are counted, by its trace; with its gradients, of whose shapes the formulas
# speak, and the network's summary, of its batch norms.
# shellcheck disable=SC2046,SC2086
trace_promises() {
    local model name options folder
    for model in $models; do
        run_once "summary-$model" "$bin/train_single" $(model_options "$model") --summary || exit 1
        while read -r name options; do
            folder=$out/runs/count-$model-$name
            log_every=1000 ranks_of job "count-$model-$name" $(model_options "$model") --global-batch 16 --steps 6 \
                --trace "$folder/trace.json" --dump-grads "$folder/gradients" $options
        done < <(promises_of "$model")
    done
}
