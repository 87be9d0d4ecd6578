#!/usr/bin/env bash
# promises.sh: the time per step of each of DDP's promises and options, measured alternately with DDP's defaults, and
# the messages and bytes of a step compared with their formulas. Two ranks, on CPU cores. Takes some minutes.
#
# Writes prices.csv, counts.csv, promises.svg, section.md and section.html, which
# bench/compare.sh's report brings in. The exit status is 0 only if all counts are those of the formulas; times
# are measured, not judged.
#
# usage: bench/promises.sh [options]
#   --quick        one round of a few small steps: tries the command and counts, and measures no speed
#   --rounds N     rounds in which each runs once (default: 5)
#   --patience SECONDS  how long disturbed runs are made once more (default: 90; with --quick 0)
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/compare/begin.sh"
source bench/promises/measure.sh

rounds=5 out=bench/out-promises
read_options bench/promises.sh "$@"
patience=${patience:-$((quick ? 0 : 90))}
get_ready train_single train_ddp train_fsdp ddprun bench_probe
models="mlp convnet" steps=35 batch=256 hidden=1024,1024
[[ $quick == 0 ]] || { rounds=1 steps=8 batch=32 hidden=128,128 data=synthetic:1x28x28:10@512; }
unset OPENBLAS_CORETYPE RANK WORLD_SIZE

open_section {prices,counts}.csv

# shellcheck disable=SC2086 # models are words
measure() {
    begin_section "messages and bytes"
    trace_promises
    each_round time_promises $models
}
make_all measure
write_facts "models $models" "promises-mlp $(names_of mlp)" "promises-convnet $(names_of convnet)" "rounds $rounds" \
    "quick $quick" "patience $patience" "hidden $hidden" -- \
    "BLAS: $(json blas "$out/runs/price-mlp-plain-1/config.json")"
write_report promises
[[ -s $out/counts.csv ]] && ! grep -q ',0$' "$out/counts.csv"
