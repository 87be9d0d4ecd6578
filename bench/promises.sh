#!/usr/bin/env bash
# promises.sh: what each of DDP's promises and options costs per step, in turns with DDP as it comes; the
# messages and bytes of a step beside their formulas; where the rest of a speed-up of two goes; and sweeps of
# threads per rank, of the batch, of depth against width. Two ranks, on CPU cores.
#
# Writes prices.csv, counts.csv, shapes.csv, table.txt, two figures, section.md and section.html, which
# bench/compare.sh's report brings in. The exit status is 0 only if all counts are those of the formulas; times
# are measured, not judged.
set -euo pipefail
export LC_ALL=C

here=$PWD
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source bench/setup.sh
for part in compare/runs compare/options compare/tables compare/section promises/measure promises/table; do
    # shellcheck source=/dev/null
    source "bench/$part.sh"
done

usage() {
    cat <<END
usage: bench/promises.sh [options]
  --quick        one round of a few small steps: tries the command and counts, and measures no speed
  --rounds N     rounds in which each runs once (default: 5)
  --out DIR      where the results go (default: bench/out-promises)
  --resume       go on with a call that was interrupted (the same options)
  --bin DIR      use the programs in DIR, build nothing
  --help         this text
END
}

rounds=5 quick=0 resume=0 out=bench/out-promises bin=""
declare -A flags=([--quick]=quick [--resume]=resume) values=([--rounds]=rounds) paths=([--out]=out [--bin]=bin)
read_options bench/promises.sh "$@"
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail_usage "--rounds $rounds: expected a number from 1"
models="mlp convnet" steps=35 batch=256 batches="8 32 128 512" hidden=1024,1024
[[ $quick == 0 ]] || { rounds=1 steps=8 batch=32 batches="8 32" hidden=128,128; }
unset OPENBLAS_CORETYPE RANK WORLD_SIZE
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

[[ -n $bin ]] || {
    setup_require 0 build
    setup_build "$root" build train_single train_dp train_ddp ddprun
    bin=$root/build/bin
}
open_results prices.csv
echo set,name,round,ms >"$out/prices.csv"
begun=$SECONDS
count_promises
for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds ($((SECONDS - begun)) s)" >&2
    time_promises "$round"
    time_limits "$round"
    time_threads "$round"
    time_batches "$round"
done
measure_shapes
write_promise_plots

tables() { # HOW: terminal_table or markdown_table
    local model
    for model in $models; do
        echo "$model"
        echo
        promise_rows "$model" | "$1"
        echo
    done
}

speech() {
    count_sentence
    if [[ $quick == 1 ]]; then echo "A quick run: its times mean nothing." && return; fi
    is_steady "$out/prices.csv" || return 0
    promise_sentence
    limit_sentence
}
{
    tables terminal_table
    thread_rows | terminal_table
    echo
    batch_rows | terminal_table
    echo
    shape_rows | terminal_table
} >"$out/table.txt"
{
    echo "## What each promise costs"
    echo
    speech
    echo
    draw_section promises
    echo
    tables markdown_table
    echo "Two ranks. A price is the difference to \`plain\` in the same round, then its median. SyncBatchNorm's own"
    echo "messages, which go through a group of their own, are not in the counts: for each layer of C channels an"
    echo "all-gather of 4 (2C + 1) bytes forward and an all-reduce of 8C bytes backward. no_sync-4 works on the"
    echo "batch in four parts and communicates once."
    echo
    echo "### Threads per rank, batch, depth"
    echo
    thread_rows | markdown_table
    echo
    [[ $quick == 1 ]] || ! is_steady "$out/prices.csv" >/dev/null || batch_sentence
    echo
    draw_section batches
    echo
    batch_rows | markdown_table
    echo
    echo "The first bucket of 1 MB is ready at this share of backward, in networks of about as many parameters:"
    echo
    shape_rows | markdown_table
    echo
    machine_facts "$(json blas "$out/runs/price-mlp-plain-1/config.json")" "Command: \`$asked\`"
} >"$out/section.md"
write_section promises
cat "$out/table.txt"
speech
echo "the section for the report: $out/section.html" >&2
! grep -q ',0$' "$out/counts.csv"
