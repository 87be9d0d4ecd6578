# measure.sh: the runs of paper.sh; bench/report/paper.py makes a row of each. Sourced after compare/begin.sh; uses out, bin,
# models, links, rounds, steps, worlds, caps, iterations and hidden.

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
