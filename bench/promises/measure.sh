# measure.sh: the runs of promises.sh and what they wrote: prices.csv (a row per run: its median step, and whether it was
# disturbed), shapes.csv, and counts.csv (collectives of one step, by the trace). Sourced after compare/section.sh,
# compare/devices.sh and compare/disturbed.sh; uses out, bin, models, rounds, steps, batch, batches and hidden.

warm_up=5 # steps that do not count
splits="1x2 2x1 2x2 2x4" # ranks x threads of each

# What a model trains on here.
model_options() {
    case $1 in
    mlp) echo --model mlp --hidden "$hidden" --data "synthetic:1x28x28:10@2048" ;;
    convnet) echo --model convnet --data "synthetic:1x28x28:10@2048" ;;
    esac
}

# The promises: a name, and the options that give it. `plain` is DDP as it comes.
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
END
    [[ $1 != convnet ]] || cat <<END
no-buffers --no-broadcast-buffers
sync-batch-norm --sync-batch-norm
END
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

# rank_job NAME OPTION...: two ranks of train_ddp, each on its own cores, with the rows that DP gives.
rank_job() {
    timed_job "$1" "$bin/ddprun" --bind cores --nproc-per-node 2 "$bin/train_ddp" --sampler blocked "${@:2}"
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

# ---- what was timed -----------------------------------------------------------------------------------

# is_disturbed RUN: prints 1 if disturbed.txt names the run, otherwise 0.
is_disturbed() {
    grep -cxF -- "$1" "$out/disturbed.txt" || true
}

# price SET NAME ROUND FOLDER [COLUMN]: a row of prices.csv: the median over a run's steps, in ms, of the whole step or of
# a column of steps.csv.
price() {
    echo "$1,$2,$3,$(is_disturbed "${4%%/*}"),$(csv "$quantiles"'
        of("step") >= skip { list[++n] = of(column) }
        END { printf "%.5f", quantile(list, n, 0.5) }' \
        skip=$warm_up column="${5:-step_ms}" "$out/runs/$4/steps.csv")"
}

# prices_of ROUND
prices_of() {
    local model name rows
    for model in $models; do
        for name in $(promises_of "$model" | cut -d ' ' -f 1); do price "$model" "$name" "$1" "price-$model-$name-$1"; done
    done
    for name in whole half; do
        price limit $name "$1" "limit-single-$name-$1"
        price limit $name-optimizer "$1" "limit-single-$name-$1" optimizer_ms
    done
    for name in 0 1; do price limit pair-$name "$1" "limit-pair-$1/$name"; done
    for name in $splits; do price threads "$name" "$1" "threads-$name-$1"; done
    for rows in $batches; do
        for name in single dp ddp; do price "batch-$rows" $name "$1" "batch-$name-$rows-$1"; done
    done
}

# Writes prices.csv and shapes.csv, once all runs are made.
write_prices() {
    local round sizes trace
    echo set,name,round,disturbed,ms >"$out/prices.csv"
    for ((round = 1; round <= rounds; round++)); do prices_of $round >>"$out/prices.csv"; done
    echo hidden,buckets,first_ready,disturbed >"$out/shapes.csv"
    for sizes in $shapes; do
        trace=$out/runs/shape-$sizes/trace.json
        echo "${sizes//,/-},$(buckets_in "$trace"),$(first_ready "$trace"),$(is_disturbed "shape-$sizes")" >>"$out/shapes.csv"
    done
}

# ---- what is counted ----------------------------------------------------------------------------------

# of_last_step TRACE: rank 0's collectives of the last step, a line "bytes" each.
of_last_step() {
    awk "$(<bench/compare/trace.awk)"'
        !/"ph": *"X"/ || number_of("pid") != 0 { next }
        /"name": *"optimizer"/ { before = last; last = number_of("ts") + number_of("dur"); next }
        number_of("bytes") >= 0 { at[++n] = number_of("ts"); bytes[n] = number_of("bytes") }
        END { for (i = 1; i <= n; i++) if (at[i] >= before && at[i] < last) print bytes[i] }' "$1"
}

# How many buckets a traced run has.
buckets_in() {
    grep -o '"bucket": *[0-9]*' "$1" | sort -u | wc -l
}

# parameter_shapes FILE: of a safetensors file, "16 9" for a matrix (its dimensions from the second on multiplied,
# as PowerSGD sees it), "10" for a vector; a line each.
parameter_shapes() {
    head -c 1000000 "$1" | tr -c '[:print:]' '\n' | tr -d '\n' | grep -o '"shape": *\[[0-9, ]*\]' |
        awk -F'[][]' '{
            n = split($2, size, /, */)
            rest = 1
            for (i = 2; i <= n; i++) rest *= size[i]
            print (n > 1 ? size[1] " " rest : size[1])
        }'
}

# formula NAME BUCKETS BUFFER_BYTES [CHANNELS] <SHAPES: "messages bytes" of a step. A gradient begins on a cache line, so
# that its bytes are those of whole lines; PowerSGD (rank 1) sends of an n x m matrix n + m numbers if these are
# less than half of it, and the rest as it is. CHANNELS are those of each batch norm ("16 32"): synchronized, a layer of C
# of them gathers mean, deviation and count forward (2 C + 1 numbers) and adds up two sums backward (2 C).
formula() {
    awk -v name="$1" -v buckets="$2" -v buffers="$3" -v channels="${4:-}" '
        function lines(count) { return int((4 * count + 63) / 64) * 64 }
        { tensors++; count = $1 * (NF > 1 ? $2 : 1); gradients += lines(count) }
        NF > 1 && 2 * ($1 + $2) < count { p += 4 * $1; q += 4 * $2; next }
        { plain += 4 * count }
        END {
            messages = buckets
            bytes = gradients
            if (name == "noop") messages = bytes = 0
            if (name == "fp16" || name == "bf16") bytes = gradients / 2
            if (name == "powersgd") { messages = 3 * buckets; bytes = p + q + plain }
            if (name == "find-unused") { messages++; bytes += 4 * tensors }
            if (name == "sync-batch-norm") {
                layers = split(channels, c, " ")
                messages += 2 * layers
                for (i = 1; i <= layers; i++) bytes += 4 * (2 * c[i] + 1) + 4 * 2 * c[i]
            }
            if (buffers && name != "no-buffers") { messages++; bytes += buffers }
            print messages, bytes
        }'
}

# Of a model, the channels of each batch norm, with blanks between, as its summary has them.
# shellcheck disable=SC2046
norm_channels() {
    "$bin/train_single" $(model_options "$1") --summary | sed -n 's/.* BatchNorm .*weight \[\([0-9]*\)\].*/\1/p' | paste -sd ' ' -
}

# Bytes of the running statistics, which rank 0 broadcasts: of each channel a mean and a variance in float32, and of each
# batch norm an int64 counter.
buffer_bytes() {
    norm_channels "$1" | awk '{ for (i = 1; i <= NF; i++) bytes += 2 * 4 * $i + 8 } END { print bytes + 0 }'
}

# shellcheck disable=SC2046,SC2086
count_promises() {
    local model name options folder channels buffers
    echo model,promise,messages,bytes,formula_messages,formula_bytes,held >"$out/counts.csv"
    for model in $models; do
        channels=$(norm_channels "$model") buffers=$(buffer_bytes "$model")
        while read -r name options; do
            folder=$out/runs/count-$model-$name
            log_every=1000 job "count-$model-$name" "$bin/ddprun" --bind cores --nproc-per-node 2 "$bin/train_ddp" \
                --sampler blocked $(model_options "$model") --global-batch 16 --steps 6 \
                --trace "$folder/trace.json" --dump-grads "$folder/gradients" $options
            of_last_step "$folder/trace.json" | awk -v model="$model" -v name="$name" -v wanted="$(
                parameter_shapes "$folder/gradients" |
                    formula "$name" "$(buckets_in "$folder/trace.json")" "$buffers" "$channels"
            )" '
                { messages++; bytes += $1 }
                END {
                    split(wanted, of_formula, " ")
                    held = messages + 0 == of_formula[1] && bytes + 0 == of_formula[2]
                    print model "," name "," messages + 0 "," bytes + 0 "," of_formula[1] "," of_formula[2] "," held
                }' >>"$out/counts.csv"
        done < <(promises_of "$model")
    done
}

# The median over rank 0's steps of the time from the begin of backward to the first bucket's readiness, as a
# share of backward.
first_ready() {
    awk "$(<bench/compare/trace.awk)$quantiles"'
        number_of("pid") != 0 { next }
        /"name": *"bucket is ready"/ { ready[++r] = number_of("ts"); next }
        /"name": *"backward"/ { begin[++b] = number_of("ts"); finish[b] = begin[b] + number_of("dur") }
        /"name": *"optimizer"/ { steps[++s] = number_of("ts") }
        END {
            for (i = 2; i <= s; i++) {
                first = 0; from = 0; to = 0
                for (k = 1; k <= b; k++) if (begin[k] > steps[i - 1] && begin[k] < steps[i]) {
                    if (!from || begin[k] < from) from = begin[k]
                    if (finish[k] > to) to = finish[k]
                }
                for (k = 1; k <= r; k++) if (ready[k] > from && ready[k] <= to && (!first || ready[k] < first)) first = ready[k]
                if (from && first) share[++n] = (first - from) / (to - from)
            }
            printf "%.3f", n ? quantile(share, n, 0.5) : 1
        }' "$1"
}
