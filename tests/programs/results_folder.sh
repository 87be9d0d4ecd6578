#!/bin/sh
# results_folder.sh BIN_DIR: how bench's commands treat the folder of --out: they refuse a folder of other files, and
# remove only files that such a command writes; one command at a time writes there; a killed command does not hinder the
# next one, even if its programs live on. A command with two runs stands for all of them (compare/results.sh, runs.sh
# and section.sh are real).
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"

cat >some.sh <<END
#!/usr/bin/env bash
# some.sh [--out DIR] [--resume] [--program WORDS] [--model NAME]
set -euo pipefail
here=\$PWD
root="$root"
cd "\$root"
source bench/setup.sh
for part in options progress results runs section; do source "bench/compare/\$part.sh"; done
out=bench/out-none resume=0 program="echo one" model=
read_options bench/\${SOME:-some}.sh "\$@"
claim_results
[[ -z \${STOP:-} ]] || exit 3
open_section table.csv
for name in first second\$model; do run_once \$name sh -c "\$program" || exit 1; done
echo table >"\$out/table.csv"
echo figure >"\$out/loss.svg"
echo data >"\$out/plots/loss.csv"
END
chmod +x some.sh
some() { "$work/some.sh" --out "$work/out" "$@"; }
# expect WHAT WANTED FOUND
expect() {
    checks=$((checks + 1))
    [ "$2" = "$3" ] || fail "$1: '$3', not '$2'"
}
files() { (cd "${1:-out}" && find . ! -type d | sed 's,^\./,,' | sort | paste -sd ' ' -); }
six="command.txt log.txt output.txt"
made="commands.txt loss.svg manifest.txt plots/loss.csv"
for run in first second; do for file in $six; do made="$made runs/$run/$file"; done; done
made="$made table.csv"

# ---- owners of files -----------------------------------------------------------------------------------
mkdir out
echo results >out/commands.txt
mkdir out/runs && echo precious >out/runs/mine
refuse 2 "--out $work/out: is not empty and has no manifest.txt of bench/some.sh; nothing was touched" some
expect "another's folder" "commands.txt runs/mine" "$(files)"
rm -r out
run "a new folder" some
expect "what it made" "$made" "$(files)"
refuse 2 "has no manifest.txt of bench/other.sh" env SOME=other "$work/some.sh" --out out
expect "another command's" "$made" "$(files)"

# Notes beside the results are kept, and so are the targets of links.
mkdir outside
echo precious | tee outside/file >out/notes.md
ln -s "$work/outside/file" out/table.svg
ln -s "$work/outside" out/link
ln -sf "$work/outside/file" out/table.csv
for again in "" "--resume"; do
    # shellcheck disable=SC2086 # no option is none
    run "beside notes $again" some $again
    expect "notes stay $again" "$(echo "$made" link notes.md table.svg | tr ' ' '\n' | sort | paste -sd ' ')" "$(files)"
done
expect "what links lead to" precious "$(cat outside/file)"
run "other runs" some --model x
expect "the old run goes" "first secondx" "$(ls out/runs | paste -sd ' ')"
echo trace >out/trace-dp.json
run "the traces of runs that stay" some --model x --resume
expect "stay" trace "$(cat out/trace-dp.json)"
run "new runs" some --model x
expect "and go with theirs" "" "$(ls out | grep trace || true)"
status=0
some --program "echo half; exit 1" >out.txt 2>err.txt || status=$?
expect "the status of a run that fails" 1 "$status"
mv out/manifest.txt outside/manifest.txt
ln -s "$work/outside/manifest.txt" out/manifest.txt
refuse 2 "has no manifest.txt of bench/some.sh" some
rm out/manifest.txt && mv outside/manifest.txt out/manifest.txt
mv out/runs outside/runs && ln -s "$work/outside/runs" out/runs
refuse 2 "runs or plots in it is a link; nothing was touched" some
expect "behind the link" "first" "$(ls outside/runs | paste -sd ' ' -)"
rm -r out

# ---- one at a time -------------------------------------------------------------------------------------
"$work/some.sh" --out "$work/out" --program 'echo $PPID >'"$work/pid"'; until [ -e '"$work/go"' ]; do sleep 0.1; done' >out1.txt 2>&1 &
job=$!
trap 'touch "$work/go"; kill -9 $job 2>/dev/null || true; sleep 0.3; rm -rf "$work"' EXIT
until [ -s pid ] || ! kill -0 $job 2>/dev/null; do sleep 0.05; done
refuse 2 "--out $work/out: in use by process $job on $(uname -n): bench/some.sh --out " some
expect "one line" 1 "$(wc -l <err.txt)"
refuse 2 "in use by process $job" some --resume
refuse 2 "in use by process $job" env SOME=some "$work/some.sh" --out out/../out
run "another folder" "$work/some.sh" --out other
kill -9 $job
wait $job 2>/dev/null || true
checks=$((checks + 1))
kill -0 "$(cat pid)" 2>/dev/null || fail "the run of the killed command is over, so that this shows nothing"
run "after a kill, while the run lives on" some --resume
touch go
expect "what it made" "$made" "$(files)"

# ---- invalid folders -----------------------------------------------------------------------------------
echo mine >file
refuse 2 "--out $work/file: is no folder" "$work/some.sh" --out file
refuse 2 "--out $work/file/x: cannot be made" "$work/some.sh" --out file/x
refuse 2 "--out needs a value" "$work/some.sh" --out ""
refuse 2 "--out needs a value" "$work/some.sh" --out --resume
run "an odd name" "$work/some.sh" --out "-x y"
expect "in an odd name" "$made" "$(files "./-x y")"
checks=$((checks + 1))
status=0
STOP=1 "$work/some.sh" --out new/deep >out.txt 2>err.txt || status=$?
[ $status = 3 ] && [ ! -e new/deep ] || fail "status $status, and $(find new)"
mkdir empty
STOP=1 "$work/some.sh" --out empty >out.txt 2>err.txt || true
run "an empty folder that was there" "$work/some.sh" --out empty
# A command that was killed while it wrote the manifest's first lines.
mkdir unfinished && : >unfinished/manifest.txt
run "an unfinished manifest" "$work/some.sh" --out unfinished
expect "an unfinished manifest" "$made" "$(files unfinished)"
mkdir theirs && : >theirs/manifest.txt && echo notes >theirs/notes
refuse 2 "is not empty and has no manifest.txt" "$work/some.sh" --out theirs
expect "files of the user" "manifest.txt notes" "$(files theirs)"
tally results_folder
