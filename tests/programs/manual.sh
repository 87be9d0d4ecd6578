#!/bin/sh
# manual.sh BIN_DIR BUILD_DIR: sources of the manual pages: every option of the table is there, in the order of --help,
# with its meaning; so are the required sections and the version. manual_roff.sh formats the pages.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
version=$(sed -n 's/#define DDPC_VERSION "\(.*\)"/\1/p' "$2/include/ddpc/ddpc.h")
for program in train_single train_dp train_ddp train_fsdp ddprun flight_report compare_tensors merge_traces; do
    page=$2/man/$program.1
    checks=$((checks + 1))
    grep -qxF ".TH \"$program\" 1 \"\" \"ddp.c $version\" \"ddp.c\"" "$page" || fail "$program: $(head -n 1 "$page")"
    for part in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' ENVIRONMENT EXAMPLES 'SEE ALSO'; do
        case "$program $part" in 'compare_tensors ENVIRONMENT' | 'merge_traces ENVIRONMENT') continue ;; esac # they read no variables
        checks=$((checks + 1))
        grep -qx ".SH $part" "$page" || fail "$program has no part $part"
    done
    # whatis prints only the first line of the summary, so it must be a sentence.
    checks=$((checks + 1))
    sed -n '/^\.SH DESCRIPTION$/{n;n;p;q}' "$page" | grep -q '\.$' || fail "$program: the summary's first line is no sentence"
    # NAME is the complete first sentence, and SYNOPSIS equals --help's usage.
    name=$("$bin/$program" --help | sed -n 's/\.$//; 2,/^$/{/^usage/d; /./{p;q}}')
    checks=$((checks + 2))
    tr -d '\\' <"$page" | grep -qxF "$program - $name" || fail "$program: NAME is not \"$name\""
    usage=$("$bin/$program" --help | sed -n 's/^usage: [a-z_]* *//p' | head -n 1)
    [ "$(tr -d '\\' <"$page" | sed -n '/^\.SH SYNOPSIS/{n;n;s/fI//g;s/fR//g;p}')" = "$usage" ] ||
        fail "$program: SYNOPSIS is not \"$usage\""
    "$bin/$program" --help | sed -nE 's/^  (--[a-z0-9-]+).*/\1/p' >options.txt
    tr -d '\\' <"$page" | sed -nE 's/^fB(--[a-z0-9-]+)fR.*/\1/p' >listed.txt
    checks=$((checks + 1))
    cmp -s options.txt listed.txt || fail "$program: $(diff options.txt listed.txt | head -n 5)"
    # An option without a description would make an empty paragraph.
    checks=$((checks + 1))
    awk '/^\.TP/ { getline name; getline; if ($0 ~ /^ *(\(default|$)/) { print name; bad = 1 } } END { exit bad }' "$page" >bad.txt ||
        fail "$program: no meaning: $(cat bad.txt)"
done
tally manual
