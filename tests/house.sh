#!/bin/sh
# house.sh: prints the size of the code by folder, the lines of bench's scripts, and how many objects a change of the
# two central headers rebuilds.
#
#   tests/house.sh [BUILD]     BUILD: a folder with a complete build (build)
#
# Lines of code are lines that contain more than a comment. Functions are measured by tests/function_lengths.sh. Objects
# are those of the libraries and programs, without tests and tutorials.
set -eu
build=${1:-build}
cd "$(dirname "$0")/.."

count_folder() {
    find "$@" '(' -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' ')' | sort >"$files"
    tr '\n' '\0' <"$files" | xargs -0 awk '
        FNR == 1 { files++; inside = 0 }
        {
            text = $0
            if (inside) { if (!sub(/.*\*\//, "", text)) { comments++; next } inside = 0 }
            gsub(/\/\*[^*]*\*\//, "", text)
            if (text ~ /^[ \t]*\/\*/) { inside = 1; comments++; next }
            sub(/\/\/.*/, "", text)
            if (text ~ /[^ \t]/) code++
            else if ($0 ~ /[^ \t]/) comments++
        }
        END { printf "%6d %7d %9d ", files, code, comments }'
    tr '\n' '\0' <"$files" | xargs -0 tests/function_lengths.sh | sort -n -k 3 | awk '
        $3 < 0 { unmeasured++; next }
        { lengths[++functions] = $3 }
        END { printf "%10d %10d %7d %8d\n", functions, unmeasured, lengths[int((functions + 1) / 2)], lengths[functions] }'
}

files=$(mktemp)
trap 'rm -f "$files"' EXIT
printf '%-8s %6s %7s %9s %10s %10s %7s %8s\n' folder files code comments functions unmeasured median longest
for folder in common dp ddp bench; do printf '%-8s %s\n' $folder "$(count_folder $folder)"; done
printf '%-8s %s\n' together "$(count_folder common dp ddp bench)"

# Lines of bench's scripts, without recorded results.
lines_of() { find bench -name "*.$1" ! -path 'bench/results/*/*' -exec cat {} + | wc -l; }
shell=$(lines_of sh) awk=$(lines_of awk) python=$(lines_of py) templates=$(lines_of j2)
echo "scripts of bench: $((shell + awk + python + templates)) lines (shell $shell, awk $awk, Python $python, templates $templates)"

# Counts objects outside of tests that include a header: from ninja's dependency database, or from make's files.
objects_of() {
    if [ -e "$build/build.ninja" ]; then
        ninja -C "$build" -t deps |
            awk -v header="/$1" '/^[^ ]/ { object = $1 ~ /^(common|dp|ddp|bench)\//; next }
                object && substr($1, length($1) - length(header) + 1) == header { n++ } END { print n + 0 }'
    else
        find "$build/common" "$build/dp" "$build/ddp" "$build/bench" -name '*.o.d' -print0 | xargs -0 grep -l "$1" | wc -l
    fi
}

[ -d "$build/common" ] || { echo "there is no build in $build: objects are not counted" && exit 0; }
for header in common/nn/tape.h ddp/reducer.h; do
    objects=$(objects_of "$header")
    echo "after a change of $header $objects objects are compiled anew"
done
