#!/usr/bin/env bash
# paper.sh: the figures of "PyTorch Distributed: Experiences on Accelerating Data Parallel Training" (Li et al.,
# PVLDB 13, 2020) redrawn from our own runs, with the paper's points: the parts of a step with and without overlap
# (figure 6), latency by the bucket's size (7), by the number of devices (9), and with synchronisation skipped (10)
# and its convergence (11). For a model of few gradients (convnet) and one of many (mlp), over a fast and a slow
# emulated link. The paper's points in bench/paper (figure6.csv for its figure 6) were read from its figures, to about
# one pixel; of figure 11 only the ends of the curves and their largest distance (`above`: from that iteration on).
#
# Writes a CSV file per figure, five figures, section.md and section.html, which bench/compare.sh's
# report brings in. Ranks beyond the cores of this machine share them, which the paper's GPUs do not.
#
# usage: bench/paper.sh [options]
#   --quick        one round of a few steps: tries the command, and measures nothing
#   --rounds N     rounds in which each runs once (default: 5)
#   --patience SECONDS  how long disturbed runs are made once more (default: 60)
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/compare/begin.sh"

rounds=5 patience=60 out=bench/out-paper
read_options bench/paper.sh "$@"
get_ready train_ddp ddprun bench_probe
models="mlp convnet" links="paper-rdma 10gbe" steps=23 worlds="1 2 4" caps="0 0.25 1 4 25" iterations=360 hidden=1024,1024
[[ $quick == 0 ]] || {
    kind=quick rounds=1 models=convnet links=10gbe steps=6 worlds="1 2" caps="0 25" iterations=80
}
warm_up=3 # first steps, which are not measured
unset OPENBLAS_CORETYPE RANK WORLD_SIZE
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
open_section {breakdown,buckets,worlds,skip,convergence}.csv

# ddp NAME WORLD MODEL OPTION...: runs train_ddp without evaluation and logs each step.
# shellcheck disable=SC2046 # options are words
ddp() {
    start_ranks "$2"
    timed_run "$1" "${command[@]}" "$bin/train_ddp" $(network_of "$3") --no-eval --log-every 1 --out "$out/runs/$1" "${@:4}"
}

# measure_case MODEL:LINK ROUND: makes each run of the four figures once, with two ranks unless the figure needs another
# number.
measure_case() {
    local batch=$((quick ? 8 : 32)) rows model=${1%:*} name=${1/:/-} cap world every timed
    [[ $model != mlp ]] || batch=64 # rows of a rank
    rows=$((2 * batch))
    set -- "$2" --data "synthetic:1x28x28:10@$((quick ? 256 : 4096))" --link "${1#*:}"
    # Figure 6: a step without overlap and with it.
    ddp "serial-$name-$1" 2 "$model" "${@:2}" --global-batch $rows --steps $steps --bucket-cap-mb 1 --no-overlap
    ddp "overlapped-$name-$1" 2 "$model" "${@:2}" --global-batch $rows --steps $steps --bucket-cap-mb 1
    # Figure 7: by bucket size.
    for cap in $caps; do
        ddp "bucket-$name-$cap-$1" 2 "$model" "${@:2}" --global-batch $rows --steps $steps --bucket-cap-mb "$cap"
    done
    # Figure 9: by number of ranks, with a constant number of rows per rank.
    for world in $worlds; do
        ddp "world-$name-$world-$1" "$world" "$model" "${@:2}" --global-batch $((world * batch)) --steps $steps
    done
    # Figure 10: gradients of `every` iterations are accumulated before their all-reduce (no_sync). A step is `every`
    # iterations; at least six are timed.
    for every in 1 2 4 8; do
        timed=$(((steps - warm_up) / every))
        ((timed >= 6)) || timed=6
        ddp "skip-$name-$every-$1" 2 "$model" "${@:2}" --global-batch $((every * rows)) --steps $((warm_up + timed)) \
            --accumulate-steps $every
    done
}

# Figure 11: the loss by iteration when synchronisation is skipped, for a small and a large batch, with the paper's
# learning rates. PyTorch's no_sync sums the iterations' gradients, ours averages them, so the rate is multiplied. The
# losses are the same on every machine, so a disturbed run counts too.
measure_convergence() { # MODEL
    local batch every rate
    for batch in 8 256; do
        for every in 1 2 4 8; do
            rate=$(awk -v every=$every -v batch=$batch 'BEGIN { print every * (batch == 8 ? 0.02 : 0.06) }')
            kind=untimed ddp "converge-$1-$batch-$every" 2 "$1" --data digits --lr "$rate" --momentum 0 --weight-decay 0 \
                --schedule constant --global-batch $((every * batch)) --accumulate-steps $every --steps $((iterations / every))
        done
    done
}

measure() {
    local model link
    local -a cases=()
    for model in $models; do
        for link in $links; do cases+=("$model:$link"); done
    done
    each_round measure_case "${cases[@]}"
    for model in $models; do
        begin_section "convergence of $model"
        measure_convergence "$model"
    done
}

make_all measure
write_facts "models $models" "links $links" "worlds $worlds" "caps $caps" "quick $quick" "rounds $rounds" \
    "cores $(count_cores)" "iterations $iterations" "hidden $hidden" -- "$(json blas "$(a_record)")"
write_report paper
