#!/bin/sh
# results_folder.sh BIN_DIR: what bench's commands do to the folder of --out: they remove what they have made, as its
# manifest says, and nothing else, whatever stands in the manifest; one command at a time writes there; a command that
# was killed leaves nothing that hinders the next, though its programs may live on. A command that makes two runs plays
# all of them (compare/results.sh, runs.sh and section.sh are the real ones).
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

# ---- whose files these are -----------------------------------------------------------------------------
mkdir out
echo results >out/commands.txt
mkdir out/runs && echo precious >out/runs/mine
refuse 2 "--out $work/out: is not empty and has no manifest.txt of bench/some.sh; nothing was touched" some
expect "another's folder" "commands.txt runs/mine" "$(files)"
rm -r out
run "a new folder" some
expect "what it made" "$made" "$(files)"
named() { { echo manifest.txt && grep -v '^#' out/manifest.txt; } | sort | paste -sd ' ' -; }
expect "what the manifest names" "$made" "$(named)"
refuse 2 "has no manifest.txt of bench/other.sh" env SOME=other "$work/some.sh" --out out
expect "another command's" "$made" "$(files)"

# Notes beside, between and below the results stay, whatever they are called.
notes="notes.md paper-mine.svg plots/mine.gp runs/first/my notes.txt runs/mine"
touch out/notes.md out/paper-mine.svg out/plots/mine.gp "out/runs/first/my notes.txt" out/runs/mine
all=$(echo "$made $notes" | sed 's/my notes/my_notes/' | tr ' ' '\n' | sed 's/my_notes/my notes/' | LC_ALL=C sort | paste -sd ' ' -)
files() { (cd "${1:-out}" && find . ! -type d | sed 's,^\./,,' | LC_ALL=C sort | paste -sd ' ' -); }
for again in "" "--resume"; do
    # shellcheck disable=SC2086 # no option is none
    run "beside notes $again" some $again
    expect "notes stay $again" "$all" "$(files)"
    expect "and are not claimed $again" "$made" "$(named)"
done
run "other runs" some --model x
expect "the old run goes" "" "$(ls out/runs | grep -x second || true)"
expect "the notes of a run stay" "my notes.txt" "$(ls out/runs/first | grep my)"
run "a run that fails" some --model x
status=0
some --program "echo half; exit 1" >out.txt 2>err.txt || status=$?
expect "its status" 1 "$status"
expect "it is named" runs/first/output.txt "$(grep -x runs/first/output.txt out/manifest.txt)"
sed -i '/^table.csv$/d' out/manifest.txt
echo "mine" >out/table.csv
refuse 2 "table.csv there is not from bench/some.sh; nothing was touched" some
expect "a table of one's own" mine "$(cat out/table.csv)"
rm -r out

# ---- hostile manifests ---------------------------------------------------------------------------------
run "a folder" some
mkdir -p outside/folder
echo precious | tee outside/file outside/folder/file kept >/dev/null
ln -s "$work/outside" out/link
ln -s ../../outside/file out/runs/linked
mkdir out/deep && ln -s "$work/outside/folder" out/deep/link
touch "out/a b" out/-rf
cat >>out/manifest.txt <<END
$work/kept
/$work/kept
../kept
runs/../../kept
link/file
link/folder/file
deep/link/file
deep/./link/file
runs
..
.

runs/linked
-rf
a b
\$(touch "$work/carried-out")
*
END
run "a hostile manifest" some
expect "outside" "outside/file outside/folder/file" "$(find outside -type f | sort | paste -sd ' ' -)"
expect "above" precious "$(cat kept)"
expect "what the manifest says is carried out literally" "" "$(find "$work" -name 'carried-out' -o -name '-rf' -o -name 'a b')"
expect "a link is removed, and not what it leads to" precious "$(cat outside/file)"
expect "what it made" "$(echo "$made deep/link link" | tr ' ' '\n' | sort | paste -sd ' ' -)" "$(files | tr ' ' '\n' | sort | paste -sd ' ' -)"
mv out/manifest.txt outside/manifest.txt
ln -s "$work/outside/manifest.txt" out/manifest.txt
refuse 2 "has no manifest.txt of bench/some.sh" some
rm out/manifest.txt && mv outside/manifest.txt out/manifest.txt
mv out/runs outside/runs && ln -s "$work/outside/runs" out/runs
refuse 2 "runs or plots in it is a link; nothing was touched" some
expect "behind the link" "first second" "$(ls outside/runs | paste -sd ' ' -)"
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

# ---- folders that cannot be ----------------------------------------------------------------------------
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
# A command that was ended while it wrote the manifest, at two moments.
mkdir unfinished
: >unfinished/.manifest.Ab3dEf
head -n 1 empty/manifest.txt >unfinished/.manifest.Gh1jKl
run "unfinished manifests" "$work/some.sh" --out unfinished
expect "unfinished manifests" "$made" "$(files unfinished)"
expect "none is left" "" "$(find unfinished -name '.manifest.*')"
mkdir theirs
echo notes >theirs/.manifest.Mn2oPq
refuse 2 "is not empty and has no manifest.txt" "$work/some.sh" --out theirs
expect "a file of the user" notes "$(cat theirs/.manifest.Mn2oPq)"
tally results_folder
