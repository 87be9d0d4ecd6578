#!/bin/sh
# manual.sh BIN_DIR BUILD_DIR: the manual pages. Every option of the table is in them, in the order of --help; roff finds
# nothing to complain about; the parts that a page must have are there.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
command -v groff >/dev/null || { echo "manual: there is no groff" && exit 77; }
for program in train_single train_dp train_ddp ddprun flight_report compare_tensors; do
    page=$2/man/$program.1
    run "$program: roff" groff -man -Tascii -ww -rLL=100n "$page"
    [ ! -s err.txt ] || fail "$program: $(head -n 3 err.txt)"
    sed 's/\x1b\[[0-9;]*m//g' out.txt | sed 's/.\x08//g' >page.txt
    for part in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' ENVIRONMENT EXAMPLES 'SEE ALSO'; do
        [ "$program $part" != 'compare_tensors ENVIRONMENT' ] || continue # it reads none
        checks=$((checks + 1))
        grep -qx "$part" page.txt || fail "$program has no part $part"
    done
    # The first line of the summary is what whatis prints, alone.
    checks=$((checks + 1))
    sed -n '/^DESCRIPTION$/{n;p;q}' page.txt | grep -q '\.$' || fail "$program: the summary's first line is no sentence"
    "$bin/$program" --help | sed -nE 's/^  (--[a-z0-9-]+).*/\1/p' >options.txt
    sed -nE 's/^ {7}(--[a-z0-9-]+)( .*)?$/\1/p' page.txt | grep -v -- '--help=man' >listed.txt
    checks=$((checks + 1))
    cmp -s options.txt listed.txt || fail "$program: $(diff options.txt listed.txt | head -n 5)"
    # An option without a word of meaning would be an empty paragraph.
    checks=$((checks + 1))
    awk '/^\.TP/ { getline name; getline; if ($0 ~ /^ *(\(default|$)/) { print name; bad = 1 } } END { exit bad }' "$page" >bad.txt ||
        fail "$program: no meaning: $(cat bad.txt)"
done
tally manual
