#!/usr/bin/env bash
# measured_rows.sh BIN_DIR: the computation of rows of bench/compare.sh's CSV files: disturbed runs, repeated runs, the
# verdicts in difference.csv, and the record of the machine. The report's sentences: tests/report.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$root"
checks=0 failures=0

# expect WHAT WANTED SEEN
expect() {
    checks=$((checks + 1))
    [[ $2 == "$3" ]] && return
    failures=$((failures + 1))
    printf 'FAILED: %s\n  expected: %s\n  got:      %s\n' "$1" "$2" "$3"
}

source bench/compare/runs.sh
source bench/compare/disturbed.sh
source bench/compare/link.sh

# ---- disturbed runs ------------------------------------------------------------------------------------------
kind=cpu threads=0
if [[ -x $1/bench_allocations ]]; then # exists only in builds without sanitizers
    bin=$1 take_probe 1
    expect "what is read of bench_probe" yes "$([[ $last_probe =~ ^1,[0-9.]+,[0-9.]+$ ]] && echo yes || echo "$last_probe")"
    last_probe=
fi
probed() { # NAME BEFORE AFTER: a run between two probes with these rates
    mkdir -p "$out/runs/$1"
    printf 'threads,gflops,triad_gbps\n%s\n%s\n' "$threads,$2" "$threads,$3" >"$out/runs/$1/probe.csv"
    touch "$out/runs/$1/steps.csv"
}
for repeat in 1 2 3; do probed speed-mlp-dp-2-$repeat 100,20 98,21; done
probed speed-mlp-ddp-2-1 101,19 100,20
probed speed-mlp-ddp-2-2 100,20 79,20 # slower products after the run
probed speed-mlp-ddp-2-3 100,15 100,20 # slower memory before the run
probed speed-mlp-dp-4-1 100,20 130,20 # faster than in all other runs
for repeat in 1 2; do threads=1 probed speed-mlp-single-1-$repeat 60,12 61,12; done # on one core
threads=1 probed speed-mlp-single-1-3 30,12 60,12
expect "the usual probe" "101 21" "$(usual_probe 0 | tr '\t' ' ')"
expect "the usual probe of one core" "61 12" "$(usual_probe 1 | tr '\t' ' ')"
disturbed_runs >"$out/disturbed.txt"
expect "disturbed runs" "speed-mlp-ddp-2-2 speed-mlp-ddp-2-3 speed-mlp-dp-4-1 speed-mlp-single-1-3" "$(sort "$out/disturbed.txt" | paste -sd ' ' -)"
counted() { undisturbed_of "$1" | sed 's|.*/\(speed[^/]*\)/.*|\1|' | paste -sd ' ' -; }
expect "all count" "speed-mlp-dp-2-1 speed-mlp-dp-2-2 speed-mlp-dp-2-3" "$(counted speed-mlp-dp-2)"
expect "most are disturbed" "disturbed speed-mlp-ddp-2-1 speed-mlp-ddp-2-2 speed-mlp-ddp-2-3" "$(counted speed-mlp-ddp-2)"
sed -i /ddp-2-2/d "$out/disturbed.txt"
expect "one is left out" "speed-mlp-ddp-2-1 speed-mlp-ddp-2-2" "$(counted speed-mlp-ddp-2)"

# Repeated runs: those that a series lacks; if no series lacks any, all runs of a series with a wide spread.
warm_up=0
step_times='print "step_ms,samples_per_s" extra; for (i = 0; i < 6; i++) print ms ",500" zeros'
steps_of() { # RUN MS: six steps of this time
    awk -v ms="$2" -v extra="$(awk -v header=1 -f bench/compare/summarize.awk | tr , '\n' | grep '_ms$' |
        sed 's/^/,/' | tr -d '\n')" -v zeros="$(printf ',0%.0s' {1..15})" "BEGIN { $step_times }" >"$out/runs/$1/steps.csv"
}
for run in speed-mlp-dp-2-{1,2,3} speed-mlp-ddp-2-{1,2,3} speed-mlp-dp-4-1 speed-mlp-single-1-{1,2,3}; do steps_of $run 10; done
printf '%s\n' speed-mlp-ddp-2-{2,3} speed-mlp-dp-2-1 >"$out/disturbed.txt"
steps_of speed-mlp-dp-2-2 13
expect "what a series lacks" "speed-mlp-ddp-2-2 speed-mlp-ddp-2-3" "$(runs_to_repeat | paste -sd ' ' -)"
echo speed-mlp-dp-2-1 >"$out/disturbed.txt"
expect "what lies far apart" "speed-mlp-dp-2-1 speed-mlp-dp-2-2 speed-mlp-dp-2-3" "$(runs_to_repeat | paste -sd ' ' -)"
steps_of speed-mlp-dp-2-2 12
expect "nothing" "" "$(runs_to_repeat)"

# Runs that remain disturbed mark their row of summary.csv, however similar their steps are.
printf 'step_ms,samples_per_s%s\n' "$(awk -v header=1 -f bench/compare/summarize.awk | tr , '\n' |
    grep '_ms$' | sed 's/^/,/' | tr -d '\n')" >"$out/steps.csv"
for ((step = 0; step < 6; step++)); do echo "2,500$(printf ',0.1%.0s' {1..15})" >>"$out/steps.csv"; done
last_field() { awk -v skip=2 -v facts="$1" -f bench/compare/summarize.awk "$out/steps.csv" | sed 's/.*,//'; }
expect "an undisturbed row" 0 "$(last_field strategy=dp)"
expect "a disturbed row" 1 "$(last_field strategy=dp,disturbed=1)"

# ---- the verdicts --------------------------------------------------------------------------------------------
# verdict DP25 DP50 DP75 DDP25 DDP50 DDP75 [DISTURBED]: prints the verdict of difference.csv, whose phases add up to the
# step.
verdict() {
    {
        echo "strategy,model,world_size,timed,disturbed,step_ms_p25,step_ms_p50,step_ms_p75,forward_ms,$(
            printf '%s_ms\n' data scatter replicate gather loss backward reduce exposed optimizer other | paste -sd , -)"
        echo "dp,mlp,2,1,${7:-0},$1,$2,$3,$2,0,0,0,0,0,0,0,0,0,0"
        echo "ddp,mlp,2,1,0,$4,$5,$6,$5,0,0,0,0,0,0,0,0,0,0"
    } >"$out/verdict.csv"
    awk -f bench/compare/difference.awk "$out/verdict.csv" | csv 'of("phase") == "step" { print of("verdict"), of("difference_ms") }' |
        tr '\t' ' '
}
expect "DDP is faster" "saves -2.0000" "$(verdict 9 10 11 7 8 9)"
expect "DDP is slower" "loses 2.0000" "$(verdict 7 8 9 9 10 11)"
expect "a tie" "ties 0.5000" "$(verdict 9 10 11 9.5 10.5 11.5)"
expect "a tie needs both medians within the other's quartiles" "loses 0.5000" "$(verdict 9 10 11 10.2 10.5 11.5)"
expect "disturbed" "disturbed -2.0000" "$(verdict 9 10 11 7 8 9 1)"

expect "a link is said to be emulated" "a,b,emulated_link 1,2,10 Gbit/s and 20 us" \
    "$(printf 'a,b\n1,2\n' | with_link "an emulated link of 10 Gbit/s and 20 us" | paste -sd ' ' -)"

source bench/compare/section.sh
source bench/compare/facts.sh
# ---- the machine ---------------------------------------------------------------------------------------------
mkdir -p "$out/build/bin" "$out/runs/a"
printf 'CMAKE_C_FLAGS:STRING=-g\nCMAKE_C_FLAGS_RELEASE:STRING=-O3 -DNDEBUG\n' >"$out/build/CMakeCache.txt"
printf ' "compiler": "12.2.0",\n "blas": "OpenBLAS 0.3 Zen",\n' >"$out/runs/a/config.json"
bin=$out/build/bin load="0.10 0.20 0.30" asked="bench/compare.sh --quick"
facts=$(env -i PATH="$PATH" OPENBLAS_CORETYPE=Zen OMP_NUM_THREADS=1 bash -c "$(declare -f machine_lines machine_facts \
    a_record count_cores commit_line json); $(declare -p bin load asked out kind); machine_lines")
expect "what is recorded of a machine" "Processor Memory System Compiler Flags Cores Variables Commit BLAS Command" \
    "$(sed -n 's/^- \([A-Z][A-Za-z]*\)[ :].*/\1/p' <<<"$facts" | paste -sd ' ' -)"
expect "the compiler, the library, the flags, the variables and the command" "- Compiler: gcc 12.2.0, Release
- Flags: -g -O3 -DNDEBUG
- Variables that change the libraries: OMP_NUM_THREADS=1 OPENBLAS_CORETYPE=Zen
- BLAS: OpenBLAS 0.3 Zen
- Command: \`bench/compare.sh --quick\`" "$(grep -E '^- (Compiler|BLAS|Flags|Variables|Command)' <<<"$facts")"
expect "the cores, the governor and the load" 1 \
    "$(grep -cE '^- Cores: [0-9,-]+, governor .+, load at the beginning: 0\.10 0\.20 0\.30$' <<<"$facts")"

echo "measured_rows: $checks checks, $failures failures"
[[ $failures == 0 ]]
