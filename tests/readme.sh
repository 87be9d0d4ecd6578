#!/bin/sh
# readme.sh BIN_DIR: README.md keeps its word: its commands run (for one epoch, without the folders that are
# the reader's own), the programs and files that it names exist, and its options are in --help.
set -eu
bin=$1
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=0 failures=0

check() { # WHAT COMMAND...
    checks=$((checks + 1))
    what=$1
    shift
    "$@" >"$work/log" 2>&1 && return 0
    failures=$((failures + 1))
    echo "FAILED: $what"
    tail -n 5 "$work/log"
}

sed -n 's/^    \(build\/bin\/.*\)$/\1/p' README.md | grep -v 'path/to' >"$work/commands"
while read -r command; do
    command=$(echo "$command" | sed "s#build/bin#$bin#g")
    # shellcheck disable=SC2086 # a command line is words
    check "$command" sh -c "cd '$work' && $command --epochs 1"
done <"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 3 ] || check "the README's commands" false

for program in $(grep -oE 'build/bin/[a-z_]+' README.md | sort -u); do
    check "$program" test -x "$bin/${program#build/bin/}"
done
for file in $(grep -oE '`(common|dp|ddp|bench|tests)/[a-z_/]+\.(c|h|sh|md|py)' README.md | tr -d '\140' | sort -u) \
    $(grep -oE '\]\([^)#]+\)' README.md | tr -d '])('); do
    check "$file" test -e "$root/$file"
done

for program in train_single train_dp train_ddp ddprun; do "$bin/$program" --help; done >"$work/help"
for option in $(grep -oE -- '--[a-z][a-z-]+' README.md | sort -u); do
    case $option in --quick | --install | --help) continue ;; esac # of bench/compare.sh
    check "$option" grep -q -- "  $option" "$work/help"
done

echo "readme: $checks checks, $failures failures"
[ "$failures" = 0 ]
