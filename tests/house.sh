#!/bin/sh
# house.sh: how large the house is, room by room, and what a change of its two central headers costs.
#
#   tests/house.sh [BUILD]     BUILD: a folder with a whole build (build)
#
# A line of code is one that holds more than a comment. A function goes from the line at the margin that ends in
# ") {" to the next brace at the margin. Objects are those of the libraries and programs, without tests and tutorials.
set -eu
build=${1:-build}
cd "$(dirname "$0")/.."

count_room() {
    find "$@" '(' -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' ')' | sort | tr '\n' '\0' | xargs -0 awk '
        FNR == 1 { files++; inside = begin = 0 }
        {
            text = $0
            if (inside) { if (!sub(/.*\*\//, "", text)) { comments++; next } inside = 0 }
            gsub(/\/\*[^*]*\*\//, "", text)
            if (text ~ /^[ \t]*\/\*/) { inside = 1; comments++; next }
            sub(/\/\/.*/, "", text)
            if (text ~ /[^ \t]/) code++
            else if ($0 ~ /[^ \t]/) comments++
        }
        /^[A-Za-z_].*\) *\{ *$/ { begin = FNR }
        begin && /^\}/ { lengths[++functions] = FNR - begin - 1; begin = 0 }
        END {
            for (i = 2; i <= functions; i++) {
                x = lengths[i]
                for (j = i; j > 1 && lengths[j - 1] > x; j--) lengths[j] = lengths[j - 1]
                lengths[j] = x
            }
            printf "%6d %7d %9d %10d %7d %8d\n", files, code, comments, functions, lengths[int((functions + 1) / 2)], \
                lengths[functions]
        }'
}

printf '%-8s %6s %7s %9s %10s %7s %8s\n' room files code comments functions median longest
for room in common dp ddp bench; do printf '%-8s %s\n' $room "$(count_room $room)"; done
printf '%-8s %s\n' together "$(count_room common dp ddp bench)"

[ -d "$build/common" ] || { echo "there is no build in $build: nothing is said of objects" && exit 0; }
for header in common/nn/tape.h ddp/reducer.h; do
    objects=$(find "$build/common" "$build/dp" "$build/ddp" "$build/bench" -name '*.o.d' -print0 | xargs -0 grep -l "$header" | wc -l)
    echo "after a change of $header $objects objects are compiled anew"
done
