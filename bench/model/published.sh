#!/usr/bin/env bash
# published.sh: compares the model of a step with results of the DDP paper (PVLDB 13, 2020): the scaling of figure 9
# and the bucket sizes of figure 7.
#
#   bench/model/published.sh [options]
#
# The profiles of ResNet-50 and BERT-large are derived from the paper's numbers for one GPU: the time of its step,
# divided as in figure 6; a tensor is ready after its layers' share of the work. Parameters are fitted to the points of
# each run by minimizing the largest relative error (bench_fit): the bandwidth of a GPU's link, in hierarchical rings
# with 8 GPUs in a node; the cost of an all-reduce besides its bytes, for each message or for each call; and the
# slowdown of a GPU that computes beside others. Then each point is held out in turn and predicted from the others. The
# predictions of figure 7's fits (16 GPUs) for the same bucket sizes on 32 GPUs are also written, for a comparison with
# a measurement.
# Prints tables and writes published.csv, fitted.csv, predicted.csv and section.html, which bench/compare.sh's report
# takes in, to DIR (bench/out-published), by bench/report/published.py. Nothing is measured here.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../compare/begin.sh"

out=bench/out-published
read_options bench/model/published.sh "$@"
get_ready bench_fit bench_scale
open_results {published,fitted,predicted}.csv {ResNet50,BERT}-{NCCL,Gloo}.json {ResNet50,BERT}-{NCCL,Gloo}-{7,9}.points
write_report published "$bin"
