#!/usr/bin/env bash
# paper.sh: the figures of "PyTorch Distributed: Experiences on Accelerating Data Parallel Training" (Li et al.,
# PVLDB 13, 2020) drawn from our own runs, beside the paper's points: the parts of a step with and without overlap
# (figure 6), latency by the bucket's size (7), by the number of devices (9), and with synchronisation skipped (10)
# and its convergence (11). For a model of few gradients (convnet) and one of many (mlp), over a fast and a slow
# emulated link. The paper's points in bench/paper were read from its figures, to about one pixel.
#
# Writes a CSV file per figure, table.txt, four figures, section.md and section.html, which bench/compare.sh's
# report brings in. Ranks beyond the cores of this machine share them, which the paper's GPUs do not.
set -euo pipefail
export LC_ALL=C

here=$PWD
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source bench/setup.sh
for part in compare/runs compare/options compare/tables compare/section paper/measure paper/table; do
    # shellcheck source=/dev/null
    source "bench/$part.sh"
done

usage() {
    cat <<END
usage: bench/paper.sh [options]
  --quick        one round of a few steps: tries the command, and measures nothing
  --rounds N     rounds in which each runs once (default: 5)
  --out DIR      where the results go (default: bench/out-paper)
  --resume       go on with a call that was interrupted (the same options)
  --bin DIR      use the programs in DIR, build nothing
  --help         this text
END
}

rounds=5 quick=0 resume=0 out=bench/out-paper bin=""
declare -A flags=([--quick]=quick [--resume]=resume) values=([--rounds]=rounds) paths=([--out]=out [--bin]=bin)
read_options bench/paper.sh "$@"
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail_usage "--rounds $rounds: expected a number from 1"
models="mlp convnet" links="paper-rdma 10gbe" steps=23 worlds="1 2 4" caps="0 0.25 1 4 25" iterations=360
[[ $quick == 0 ]] || { rounds=1 models=convnet links=10gbe steps=6 worlds="1 2" caps="0 25" iterations=80; }
unset OPENBLAS_CORETYPE RANK WORLD_SIZE
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

[[ -n $bin ]] || {
    setup_require 0 build
    setup_build "$root" build train_ddp ddprun
    bin=$root/build/bin
}
open_results breakdown.csv
echo model,link,round,forward_ms,backward_ms,communication_ms,optimizer_ms,rest_ms,overlapped_ms >"$out/breakdown.csv"
echo model,link,bucket_mb,round,seconds >"$out/buckets.csv"
echo model,link,ranks,round,seconds >"$out/worlds.csv"
echo model,link,every,round,seconds >"$out/skip.csv"
echo batch,every,iteration,loss >"$out/convergence.csv"
begun=$SECONDS
for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds ($((SECONDS - begun)) s)" >&2
    for model in $models; do
        for link in $links; do
            measure_breakdown "$round" "$model" "$link"
            measure_buckets "$round" "$model" "$link"
            measure_worlds "$round" "$model" "$link"
            measure_skipping "$round" "$model" "$link"
        done
    done
done
measure_convergence
write_paper_plots

{
    breakdown_rows | terminal_table
    for figure in buckets worlds skip; do
        echo
        tr , '\t' <"$out/plots/$figure-here.csv" | terminal_table
    done
    echo
    convergence_rows | terminal_table
} >"$out/table.txt"
{
    echo "## The DDP paper's figures"
    echo
    [[ $quick == 0 ]] || echo "A quick run: its times mean nothing."
    echo "Ours are medians over $rounds round(s) on $(count_cores) cores with emulated links; a \`convnet\` has few gradients"
    echo "for its computing, the \`mlp\` many."
    for figure in "breakdown breakdown" "buckets bucket" "worlds world" "skip skip"; do
        echo
        draw_section "paper-${figure% *}"
        echo
        [[ $quick == 1 ]] || ! is_steady "$out/buckets.csv" || "${figure#* }_sentence"
    done
    echo
    echo "The loss when gradients are sent only every so many iterations (the means of the first and of the last 40"
    echo "of $iterations), on the digits; in the paper all curves of batch 8 meet by iteration 150, and of batch 256"
    echo "those that skip end slightly above (1.52 beside 1.50)."
    echo
    convergence_rows | markdown_table
    echo
    machine_facts "$(json blas "$(find "$out/runs" -name config.json | sort | head -n 1)")" "Command: \`$asked\`"
} >"$out/section.md"
write_section paper
cat "$out/table.txt"
echo "the section for the report: $out/section.html" >&2
