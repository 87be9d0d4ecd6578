#!/bin/sh
# manual_roff.sh BIN_DIR BUILD_DIR: the manual pages as formatted by man: no roff warnings, each option on a line of its
# own, no hyphenated words.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
command -v groff >/dev/null || { echo "skipped: there is no groff" && exit 77; }
run 'ddpc: roff' groff -man -Tascii -ww "$2/man/ddpc.7"
[ ! -s err.txt ] || fail "ddpc: $(head -n 3 err.txt)"
grep -qF 'printf("loss=%.4f\n"' out.txt || fail "ddpc: the example has lost something"
for page in "$2"/man/*.1; do
    program=$(basename "$page" .1)
    run "$program: roff in 80 columns" groff -man -Tascii -ww "$page"
    [ ! -s err.txt ] || fail "$program: $(head -n 3 err.txt)"
    run "$program: roff" groff -man -Tascii -ww -rLL=100n "$page"
    [ ! -s err.txt ] || fail "$program: $(head -n 3 err.txt)"
    sed 's/\x1b\[[0-9;]*m//g' out.txt | sed 's/.\x08//g' >page.txt
    "$bin/$program" --help | sed -nE 's/^  (--[a-z0-9-]+).*/\1/p' >options.txt
    sed -nE 's/^ {7}(--[a-z0-9-]+)( .*)?$/\1/p' page.txt | grep -v -- '--help=man' >listed.txt
    checks=$((checks + 2))
    ! grep -nE '[a-z]-$' page.txt >cut.txt || fail "$program: a word is cut in two: $(head -n 3 cut.txt)"
    cmp -s options.txt listed.txt || fail "$program: $(diff options.txt listed.txt | head -n 5)"
done
[ "$checks" -ge 21 ] || fail "only $checks checks"
tally manual_roff
