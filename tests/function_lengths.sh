#!/bin/sh
# function_lengths.sh FILE...: prints "FILE:LINE NAME LENGTH" for each function, using universal-ctags; for lint.sh and
# house.sh. LENGTH is the number of lines between the braces; 1 for a function on one line. A closing brace at column 0
# that ends no function known to ctags is printed as "FILE:LINE unmeasured -1". Exit status 2 without universal-ctags.
set -eu
ctags --version 2>/dev/null | grep -q 'Universal Ctags' || {
    echo "error: there is no universal-ctags -- install it (Debian: universal-ctags)" >&2
    exit 2
}
tags=$(mktemp)
trap 'rm -f "$tags"' EXIT
ctags --languages=C,C++,CUDA --map-CUDA=+.cuh --kinds-C=f --kinds-C++=f --kinds-CUDA=f --fields=ne -n -f - "$@" >"$tags"
awk -F '\t' '
    FILENAME == ARGV[1] {
        if (/^!/) next
        line = end = 0
        for (i = 4; i <= NF; i++) {
            if ($i ~ /^line:/) line = substr($i, 6)
            if ($i ~ /^end:/) end = substr($i, 5)
        }
        name[$2, line] = $1
        last[$2, line] = end
        next
    }
    FNR == 1 { begin = inside = 0 }
    /^extern "C" \{/ || /^namespace .*\{$/ { inside = 1; next }
    (FILENAME, FNR) in name { begin = FNR; brace = 0; end = last[FILENAME, FNR] }
    begin && !brace && /\{/ { brace = FNR }
    begin && FNR == end + 0 {
        printf "%s:%d %s %d\n", FILENAME, begin, name[FILENAME, begin], brace == FNR ? 1 : FNR - brace - 1
        begin = 0
        next
    }
    /^\}$/ && inside { inside = 0; next }
    /^\}$/ { printf "%s:%d unmeasured -1\n", FILENAME, FNR }' "$tags" "$@"
