#!/usr/bin/env bash
# resume.sh BIN: the runs of an interrupted call that bench/compare/runs.sh keeps, for runs that write one line:
# completed runs of the same command, and no others; and its messages. ladder.sh interrupts a real measuring command.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
root=$PWD
source bench/setup.sh
source bench/compare/results.sh
source bench/compare/progress.sh
source bench/compare/runs.sh
source bench/compare/section.sh
command_name=bench/some.sh
work=$(mktemp -d) out=$work/results
open() { # new results
    open_section table.csv
    trap 'rm -rf "$work"' EXIT
}
asked="bench/some.sh --quick"
failures=0
claim_results

expect() { # WHAT WANTED FOUND
    [[ $2 == "$3" ]] || { echo "FAILED: $1: '$3', not '$2'" && failures=$((failures + 1)); }
}

# called RESUME NAME COMMAND...: prints the result of a call that makes this run: "kept", "made" or "failed", and the
# output.
called() {
    local status=made file
    resume=$1
    shift
    run_once "$@" 2>"$out/said" || status=failed
    ! grep -qx "kept from before: $1" "$out/said" || status=kept
    file=$(<"$out/runs/$1/output.txt")
    echo "$status ${file:-nothing}"
}

resume=0
open
odd=$'a\n [b]*"$HOME" \\n'
expect "the first time" "made one" "$(called 0 line echo one)"
expect "its command" "echo one" "$(<"$out/runs/line/command.txt")"
expect "without --resume" "made one" "$(called 0 line echo one)"
expect "with it" "kept one" "$(called 1 line echo one)"
expect "another command" "made two" "$(called 1 line echo two)"
expect "odd words" "made ${odd@Q}" "$(called 1 odd echo "${odd@Q}")"
expect "odd words again" "kept ${odd@Q}" "$(called 1 odd echo "${odd@Q}")"
expect "a failure" "failed half" "$(called 1 cut sh -c 'echo half; exit 3')"
expect "is said" "error: this run failed: sh -c 'echo half; exit 3'" "$(tail -n 1 "$out/said")"
expect "and not kept" "failed half" "$(called 1 cut sh -c 'echo half; exit 3')"
expect "every run is listed" 8 "$(wc -l <"$out/commands.txt")"

# Opens the results again, as a later call does.
touch "$out/section.html"
resume=1
open
expect "the report goes, the runs stay" "commands.txt manifest.txt plots runs said cut line odd" \
    "$(ls "$out" "$out/runs" | grep -v : | grep . | paste -sd ' ' -)"
expect "on interrupt" "interrupted after 2 of 3 runs; there is no report|kept: the finished runs, in $out/runs; their commands are in $out/commands.txt|to go on: bench/some.sh --quick" \
    "$( (finished_runs=2 planned_runs=3 && interrupted 130) 2>&1 | paste -sd '|' -)"
resume=0
expect "and to go on" "to go on: bench/some.sh --quick --resume" "$( (finished_runs=2 && interrupted 130) 2>&1 | tail -n 1)"
open
expect "without --resume all goes" "" "$(ls "$out/runs")"
echo "resume: $failures failures"
[[ $failures == 0 ]]
