#!/usr/bin/env bash
# paper.sh: the figures of "PyTorch Distributed: Experiences on Accelerating Data Parallel Training" (Li et al.,
# PVLDB 13, 2020) drawn from our own runs, beside the paper's points: the parts of a step with and without overlap
# (figure 6), latency by the bucket's size (7), by the number of devices (9), and with synchronisation skipped (10)
# and its convergence (11). For a model of few gradients (convnet) and one of many (mlp), over a fast and a slow
# emulated link. The paper's points in bench/paper (figure6.csv for its figure 6) were read from its figures, to about
# one pixel; of figure 11 only where the curves begin and end, and how far they lie apart (`above` is the most from
# that iteration on).
#
# Writes a CSV file per figure, table.txt, five figures, section.md and section.html, which bench/compare.sh's
# report brings in. Ranks beyond the cores of this machine share them, which the paper's GPUs do not.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/compare/begin.sh"
source bench/paper/measure.sh

usage() {
    cat <<END
usage: bench/paper.sh [options]
  --quick        one round of a few steps: tries the command, and measures nothing
  --rounds N     rounds in which each runs once (default: 5)
  --patience SECONDS  how long disturbed runs are made once more (default: 60)
  --out DIR      where the results go (default: bench/out-paper)
  --resume       go on with a call that was interrupted (the same options)
  --bin DIR      use the programs in DIR, build nothing
  --help         this text
END
}

rounds=5 patience=60 out=bench/out-paper
declare -A flags=([--quick]=quick [--resume]=resume) paths=([--out]=out [--bin]=bin)
declare -A values=([--rounds]=rounds [--patience]=patience)
read_options bench/paper.sh "$@"
get_ready train_ddp ddprun bench_probe
models="mlp convnet" links="paper-rdma 10gbe" steps=23 worlds="1 2 4" caps="0 0.25 1 4 25" iterations=360 hidden=1024,1024
[[ $quick == 0 ]] || {
    kind=quick rounds=1 models=convnet links=10gbe steps=6 worlds="1 2" caps="0 25" iterations=80
}
unset OPENBLAS_CORETYPE RANK WORLD_SIZE
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

open_section {breakdown,buckets,worlds,skip,convergence}.csv table.txt
begun=$SECONDS done_parts=0
parts=$(($(wc -w <<<"$models") * (rounds * $(wc -w <<<"$links") + 1)))
for ((round = 1; round <= rounds; round++)); do
    for model in $models; do
        for link in $links; do
            say_progress $done_parts $parts "round $round of $rounds, $model over $link"
            measure_round "$round" "$model" "$link"
            done_parts=$((done_parts + 1))
        done
    done
done
for model in $models; do
    say_progress $done_parts $parts "convergence of $model"
    measure_convergence "$model"
    done_parts=$((done_parts + 1))
done
repeat_disturbed_runs "$patience" || exit 1
write_facts "models $models" "links $links" "worlds $worlds" "caps $caps" "quick $quick" "rounds $rounds" "cores $(count_cores)" "iterations $iterations" "hidden $hidden" -- \
    "$(json blas "$(find "$out/runs" -name config.json | sort | head -n 1)")" "Command: \`$asked\`"
write_report paper || exit 1
