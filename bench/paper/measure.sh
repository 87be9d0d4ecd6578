# measure.sh: the runs of paper.sh. Sourced after compare/section.sh; uses out, bin, rounds, steps, links, worlds and
# caps. Writes into $out, a row per run: breakdown.csv (means over the steps, in ms, so that the parts add up),
# buckets.csv, worlds.csv and skip.csv (medians, seconds per iteration), convergence.csv.

warm_up=3 # steps that do not count

# The two kinds of model: many gradients for little computing, and few. Batches are per rank.
model_options() {
    case $1 in
    mlp) echo --model mlp --hidden 1024,1024 --data "synthetic:1x28x28:10@4096" ;;
    convnet) echo --model convnet --data "synthetic:1x28x28:10@4096" ;;
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
    run_once "$name" "$bin/ddprun" --bind cores --nproc-per-node "$world" "$bin/train_ddp" \
        $(model_options "$model") --link "$link" --global-batch "$rows" --no-eval --log-every 1 \
        --out "$out/runs/$name" "$@" || exit 1
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

# Figure 6: two ranks without and with overlap.
measure_breakdown() { # ROUND MODEL LINK
    local rows=$((2 * $(batch_of "$2"))) name=breakdown-$2-$3-$1
    ddp "serial-$name" 2 "$2" "$3" $rows --steps $steps --bucket-cap-mb 1 --no-overlap
    ddp "$name" 2 "$2" "$3" $rows --steps $steps --bucket-cap-mb 1
    echo "$2,$3,$1,$(mean_parts "serial-$name"),$(mean_parts "$name" |
        awk -F, '{ print $1 + $2 + $3 + $4 + $5 }')" >>"$out/breakdown.csv"
}

# Figure 7: by the bucket's size.
measure_buckets() { # ROUND MODEL LINK
    local cap rows=$((2 * $(batch_of "$2")))
    for cap in $caps; do
        ddp "bucket-$2-$3-$cap-$1" 2 "$2" "$3" $rows --steps $steps --bucket-cap-mb $cap
        echo "$2,$3,$cap,$1,$(median_seconds "bucket-$2-$3-$cap-$1")" >>"$out/buckets.csv"
    done
}

# Figure 9: by the number of ranks, each with as many rows.
measure_worlds() { # ROUND MODEL LINK
    local world
    for world in $worlds; do
        ddp "world-$2-$3-$world-$1" $world "$2" "$3" $((world * $(batch_of "$2"))) --steps $steps
        echo "$2,$3,$world,$1,$(median_seconds "world-$2-$3-$world-$1")" >>"$out/worlds.csv"
    done
}

# Figure 10: gradients of `every` iterations are added up before they are sent (no_sync). A step is `every`
# iterations; at least six are timed.
measure_skipping() { # ROUND MODEL LINK
    local every timed rows=$((2 * $(batch_of "$2")))
    for every in 1 2 4 8; do
        timed=$(((steps - warm_up) / every))
        ((timed >= 6)) || timed=6
        ddp "skip-$2-$3-$every-$1" 2 "$2" "$3" $((every * rows)) --steps $((warm_up + timed)) --accumulate-steps $every
        echo "$2,$3,$every,$1,$(median_seconds "skip-$2-$3-$every-$1" |
            awk -v every=$every '{ print $1 / every }')" >>"$out/skip.csv"
    done
}

# Figure 11: the loss over the iterations when synchronisation is skipped, for a small and a large batch, with the
# paper's learning rates. Under PyTorch's no_sync the gradients of the iterations add up, ours are their mean: so
# the rate is multiplied. A row is the mean loss of 40 iterations.
measure_convergence() {
    local batch every rate name
    for batch in 8 256; do
        for every in 1 2 4 8; do
            rate=$(awk -v every=$every -v batch=$batch 'BEGIN { print every * (batch == 8 ? 0.02 : 0.06) }')
            name=converge-$batch-$every
            run_once "$name" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --model mlp --data digits --lr "$rate" \
                --momentum 0 --weight-decay 0 --schedule constant --global-batch $((every * batch)) \
                --accumulate-steps $every --no-eval --steps $((iterations / every)) --log-every 1 \
                --out "$out/runs/$name" || exit 1
            csv '
                {
                    window = int((of("step") * every) / 40)
                    sum[window] += of("loss")
                    n[window]++
                }
                END { for (w = 0; w in n; w++) printf "%d,%d,%d,%.5f\n", batch, every, 40 * (w + 1), sum[w] / n[w] }
            ' batch=$batch every=$every "$out/runs/$name/steps.csv" >>"$out/convergence.csv"
        done
    done
}
