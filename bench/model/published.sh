#!/usr/bin/env bash
# published.sh: the model of a step beside what the DDP paper published (PVLDB 13, 2020): the scaling of figure 9, and
# the bucket sizes of figure 7.
#
#   bench/model/published.sh [options]
#
# A profile of ResNet-50 and of BERT-large is made of what the paper says of one GPU: its step, cut as in figure 6; the
# tensors are those of the networks, ready by their share of the work. Numbers are fitted to the points of each run by
# the smallest largest relative error (bench_fit): the width of a GPU's link, in rings of rings with 8 GPUs in a node;
# what an all-reduce costs besides its bytes, for each message or for each call; and how many times as long a GPU
# computes beside others. Then each point is held out in turn and predicted from the others. What the fits of figure 7
# (16 GPUs) say of the same bucket sizes on 32 GPUs is written, too, to be compared with a measurement.
# Prints tables and writes published.csv, fitted.csv, predicted.csv and section.html, which bench/compare.sh's report
# takes in, to DIR (bench/out-published), by bench/report/published.py. Nothing is measured here.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../compare/begin.sh"

out=bench/out-published
read_options bench/model/published.sh "$@"
get_ready bench_fit bench_scale
open_results {published,fitted,predicted}.csv {ResNet50,BERT}-{NCCL,Gloo}.json {ResNet50,BERT}-{NCCL,Gloo}-{7,9}.points
write_report published "$bin"
