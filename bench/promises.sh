#!/usr/bin/env bash
# promises.sh: what each of DDP's promises and options costs per step, in turns with DDP as it comes; the
# messages and bytes of a step beside their formulas; where the rest of a speed-up of two goes; and sweeps of
# threads per rank, of the batch, of depth against width. Two ranks, on CPU cores. Eight minutes.
#
# Writes prices.csv, counts.csv, shapes.csv, table.txt, two figures, section.md and section.html, which
# bench/compare.sh's report brings in. The exit status is 0 only if all counts are those of the formulas; times
# are measured, not judged.
set -euo pipefail
export LC_ALL=C

here=$PWD
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
cd "$root"
source bench/setup.sh
for part in compare/{devices,options,results,runs,tables,section,disturbed} promises/{measure,table}; do
    # shellcheck source=/dev/null
    source "bench/$part.sh"
done

usage() {
    cat <<END
usage: bench/promises.sh [options]
  --quick        one round of a few small steps: tries the command and counts, and measures no speed
  --rounds N     rounds in which each runs once (default: 5)
  --patience SECONDS  how long disturbed runs are made once more (default: 90; with --quick 0)
  --out DIR      where the results go (default: bench/out-promises)
  --resume       go on with a call that was interrupted (the same options)
  --bin DIR      use the programs in DIR, build nothing
  --help         this text
END
}

rounds=5 patience="" quick=0 resume=0 planning=0 out=bench/out-promises bin=""
declare -A flags=([--quick]=quick [--resume]=resume) paths=([--out]=out [--bin]=bin)
declare -A values=([--rounds]=rounds [--patience]=patience)
read_options bench/promises.sh "$@"
patience=${patience:-$((quick ? 0 : 90))}
need_number --rounds "$rounds" 1 1000
need_number --patience "$patience" 0 999999
need_programs train_single train_dp train_ddp ddprun bench_probe
claim_results
models="mlp convnet" steps=35 batch=256 batches="8 32 128 512" hidden=1024,1024
[[ $quick == 0 ]] || { rounds=1 steps=8 batch=32 batches="8 32" hidden=128,128; }
unset OPENBLAS_CORETYPE RANK WORLD_SIZE

[[ -n $bin ]] || {
    setup_require 0 build 9<&-
    setup_build "$root" build train_single train_dp train_ddp ddprun bench_probe 9<&-
    bin=$root/build/bin
}
open_section {prices,counts,shapes}.csv table.txt
begun=$SECONDS parts_done=0 parts=$((4 * rounds + 2))

# part WHAT COMMAND...: a part of the work, with what is left.
part() {
    say_progress $parts_done $parts "$1"
    "${@:2}"
    parts_done=$((parts_done + 1))
}
part "messages and bytes" count_promises
for ((round = 1; round <= rounds; round++)); do
    part "round $round of $rounds: promises" time_promises "$round"
    part "round $round of $rounds: limits" time_limits "$round"
    part "round $round of $rounds: threads" time_threads "$round"
    part "round $round of $rounds: batches" time_batches "$round"
done
part "depth against width" time_shapes
repeat_disturbed_runs "$patience" || exit 1
write_prices
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

# sentence WHAT: says it in a sentence, where times mean something.
sentence() {
    [[ $quick == 1 ]] || "$1_sentence"
}

# picture FIGURE SENTENCE: the figure, and what it says under it.
picture() {
    draw_section "$1" "$(sentence "$2")"
    echo
    sentence "$2"
    echo
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
    [[ $quick == 0 ]] || echo "A quick run: its times mean nothing."
    echo
    picture promises promise
    tables markdown_table
    echo "Two ranks, each on its own cores. A price is the difference to \`plain\` in the same round, then its median."
    echo "no_sync-4 works on the batch in four parts and communicates once. Before and after each run a probe measured"
    echo "what the cores reach: runs beside which it found another speed than most were made once more for up to"
    echo "$patience seconds, and what stayed so is left out. A row in which such runs are more than half, or times lie"
    echo "more than 25 % apart, is disturbed."
    echo
    count_sentence
    echo
    sentence limit
    echo
    echo "### Threads per rank, batch, depth"
    echo
    echo "Ranks whose matrix products have several threads (\`--threads\`), on all cores together; the first row keeps"
    echo "to one core. Worth is how many times as fast as that a row is."
    echo
    thread_rows | markdown_table
    echo
    sentence thread
    echo
    picture batches batch
    batch_rows | markdown_table
    echo
    echo "The first bucket of 1 MB is ready at this share of backward, in networks of about as many parameters:"
    echo
    shape_rows | markdown_table
    echo
    machine_facts "BLAS: $(json blas "$out/runs/price-mlp-plain-1/config.json")" "Command: \`$asked\`"
} >"$out/section.md"
write_section promises
cat "$out/table.txt"
{
    echo
    count_sentence
    for what in promise limit thread batch; do sentence $what; done
} | fold -s -w 79
echo "the section for the report: $out/section.html" >&2
! grep -q ',0$' "$out/counts.csv"
