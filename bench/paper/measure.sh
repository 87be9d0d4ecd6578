# measure.sh: the runs of paper.sh, and their rows. Sourced after compare/section.sh and disturbed.sh; uses out, bin,
# models, links, rounds, steps, worlds, caps, iterations and hidden. Once all runs are made, write_rows writes into $out, a row
# per run: breakdown.csv (means over the steps, in ms, so that the parts add up), buckets.csv, worlds.csv, skip.csv
# (medians, seconds per iteration), convergence.csv. Each row says that its link is emulated and whether the
# run was disturbed.

warm_up=3 # steps that do not count

# The two kinds of model: many gradients for little computing, and few. Batches are per rank.
model_options() {
    case $1 in
    mlp) echo --model mlp --hidden "$hidden" ;;
    convnet) echo --model convnet ;;
    esac
}
batch_of() {
    case $1 in mlp) echo 64 ;; convnet) echo 32 ;; esac
}

# ddp NAME WORLD MODEL LINK ROWS OPTION...: one run; ROWS is the global batch.
# shellcheck disable=SC2046 # options are words
ddp() {
    local name=$1 world=$2 model=$3 link=$4 rows=$5
    shift 5
    between_probes "$name" run_once "$name" "$bin/ddprun" --bind cores --nproc-per-node "$world" "$bin/train_ddp" \
        $(model_options "$model") --data "synthetic:1x28x28:10@4096" --link "$link" --global-batch "$rows" --no-eval \
        --log-every 1 --out "$out/runs/$name" "$@" || exit 1
}

# median_seconds RUN: prints the median of a run's steps, in seconds.
median_seconds() {
    csv "$quantiles"'
        of("step") >= skip { list[++n] = of("step_ms") }
        END { printf "%.6f", quantile(list, n, 0.5) / 1000 }' skip=$warm_up "$out/runs/$1/steps.csv"
}

# mean_parts RUN: prints "forward,backward,communication,optimizer,rest" in ms, the means over the middle half of a
# run's steps, so that they add up.
mean_parts() {
    csv "$quantiles"'
        of("step") < skip { next }
        {
            n++
            step[n] = sorted[n] = of("step_ms")
            forward[n] = of("forward_ms") + of("loss_ms")
            backward[n] = of("backward_ms")
            communication[n] = of("exposed_ms") + of("replicate_ms")
            optimizer[n] = of("optimizer_ms")
        }
        END {
            low = quantile(sorted, n, 0.25)
            high = quantile(sorted, n, 0.75)
            for (i = 1; i <= n; i++) {
                if (step[i] < low || step[i] > high) continue
                used++
                total += step[i]
                f += forward[i]
                b += backward[i]
                c += communication[i]
                o += optimizer[i]
            }
            printf "%.5f,%.5f,%.5f,%.5f,%.5f", f / used, b / used, c / used, o / used, (total - f - b - c - o) / used
        }' skip=$warm_up "$out/runs/$1/steps.csv"
}

# measure_round ROUND MODEL LINK: each run of the four figures once, two ranks unless the figure says another number.
measure_round() {
    local batch rows name=$2-$3 cap world every timed
    batch=$(batch_of "$2")
    rows=$((2 * batch))
    # Figure 6: without and with overlap.
    ddp "serial-$name-$1" 2 "$2" "$3" $rows --steps $steps --bucket-cap-mb 1 --no-overlap
    ddp "overlapped-$name-$1" 2 "$2" "$3" $rows --steps $steps --bucket-cap-mb 1
    # Figure 7: by the bucket's size.
    for cap in $caps; do
        ddp "bucket-$name-$cap-$1" 2 "$2" "$3" $rows --steps $steps --bucket-cap-mb $cap
    done
    # Figure 9: by the number of ranks, each with as many rows.
    for world in $worlds; do
        ddp "world-$name-$world-$1" $world "$2" "$3" $((world * batch)) --steps $steps
    done
    # Figure 10: gradients of `every` iterations are added up before they are sent (no_sync). A step is `every`
    # iterations; at least six are timed.
    for every in 1 2 4 8; do
        timed=$(((steps - warm_up) / every))
        ((timed >= 6)) || timed=6
        ddp "skip-$name-$every-$1" 2 "$2" "$3" $((every * rows)) --steps $((warm_up + timed)) --accumulate-steps $every
    done
}

# Figure 11: the loss over the iterations when synchronisation is skipped, for a small and a large batch, with the
# paper's learning rates. Under PyTorch's no_sync the gradients of the iterations add up, ours are their mean: so
# the rate is multiplied. The losses are the same on every machine, so that nothing disturbs them.
# shellcheck disable=SC2046 # options are words
measure_convergence() { # MODEL
    local batch every rate name
    for batch in 8 256; do
        for every in 1 2 4 8; do
            rate=$(awk -v every=$every -v batch=$batch 'BEGIN { print every * (batch == 8 ? 0.02 : 0.06) }')
            name=converge-$1-$batch-$every
            run_once "$name" "$bin/ddprun" --bind cores --nproc-per-node 2 "$bin/train_ddp" $(model_options "$1") \
                --data digits --lr "$rate" --momentum 0 --weight-decay 0 --schedule constant \
                --global-batch $((every * batch)) --accumulate-steps $every --no-eval \
                --steps $((iterations / every)) --log-every 1 --out "$out/runs/$name" || exit 1
        done
    done
}

# is_disturbed RUN...: prints 1 if one of the runs is among those that disturbed.txt names, otherwise 0.
is_disturbed() {
    local run
    for run; do
        ! grep -qxF -- "$run" "$out/disturbed.txt" 2>/dev/null || { echo 1 && return; }
    done
    echo 0
}

# median_rows KIND COLUMN VALUES: the rows of the runs KIND-MODEL-LINK-VALUE-ROUND: the seconds of an iteration.
median_rows() {
    local model link value round run iterations_of_a_step=1
    echo "model,link,$2,round,disturbed,seconds"
    for model in $models; do
        for link in $links; do
            for value in $3; do
                [[ $1 != skip ]] || iterations_of_a_step=$value
                for ((round = 1; round <= rounds; round++)); do
                    run=$1-$model-$link-$value-$round
                    echo "$model,$link (emulated),$value,$round,$(is_disturbed "$run"),$(median_seconds "$run" |
                        awk -v n="$iterations_of_a_step" '{ print $1 / n }')"
                done
            done
        done
    done
}

# breakdown_runs: the rows of figure 6, each made of a run without overlap and one with it.
breakdown_runs() {
    local model link round serial overlapped
    echo model,link,round,disturbed,forward_ms,backward_ms,communication_ms,optimizer_ms,rest_ms,overlapped_ms
    for model in $models; do
        for link in $links; do
            for ((round = 1; round <= rounds; round++)); do
                serial=serial-$model-$link-$round overlapped=overlapped-$model-$link-$round
                echo "$model,$link (emulated),$round,$(is_disturbed "$serial" "$overlapped"),$(mean_parts "$serial"),$(
                    mean_parts "$overlapped" | awk -F, '{ print $1 + $2 + $3 + $4 + $5 }')"
            done
        done
    done
}

# convergence_runs: the rows of figure 11; each loss is the mean of 40 iterations.
convergence_runs() {
    local model batch every
    echo model,batch,every,iteration,loss
    for model in $models; do
        for batch in 8 256; do
            for every in 1 2 4 8; do
                csv '
                    {
                        window = int((of("step") * every) / 40)
                        sum[window] += of("loss")
                        n[window]++
                    }
                    END {
                        for (w = 0; w in n; w++) printf "%s,%d,%d,%d,%.5f\n", model, batch, every, 40 * (w + 1), sum[w] / n[w]
                    }' model="$model" batch=$batch every=$every "$out/runs/converge-$model-$batch-$every/steps.csv"
            done
        done
    done
}

write_rows() {
    breakdown_runs >"$out/breakdown.csv"
    median_rows bucket bucket_mb "$caps" >"$out/buckets.csv"
    median_rows world ranks "$worlds" >"$out/worlds.csv"
    median_rows skip every "1 2 4 8" >"$out/skip.csv"
    convergence_runs >"$out/convergence.csv"
}
