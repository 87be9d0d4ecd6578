#!/bin/sh
# analyze.sh: runs clang-tidy (bugprone, clang-analyzer: .clang-tidy) and cppcheck on the sources of common, dp, ddp and
# bench, then prose.sh on comments, messages and pages. Each finding is fixed, or suppressed at its line with the
# reason. Exit status 1 if there is a finding, 77 if neither clang-tidy nor cppcheck is installed.
#
#   tests/analyze.sh [--quick] [BUILD]     BUILD: build
#
# Nearly all of the time is the analyzer's, which explores up to 225,000 states per function. --quick, as in .ci/run,
# explores a third of them; before a release run it without.
set -eu
cd "$(dirname "$0")/.."
states=225000
[ "${1:-}" != --quick ] || { states=75000 && shift; }
build=${1:-build}
[ -e "$build/compile_commands.json" ] || { echo "analyze: no $build/compile_commands.json: build first" && exit 2; }
findings=$(mktemp) macros=$(mktemp)
trap 'rm -f "$findings" "$macros"' EXIT
ran=0 status=0

# Only C files: clang 14 cannot parse nvcc's sources, and mpicc's are not in the build's compile commands.
files=$(find common dp ddp bench -name '*.c' ! -path '*/cuda/*' ! -path '*/nccl/*' ! -path 'bench/peers/*' | sort)

if command -v clang-tidy >/dev/null; then
    ran=1
    # Only files that were built here: some need libraries that may be missing.
    echo "$files" | while read -r file; do
        ! grep -qF "/$file\"" "$build/compile_commands.json" || echo "$file"
    done | xargs -P "$(nproc)" -n 8 nice clang-tidy --quiet -p "$build" \
        --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=$states \
        >"$findings" 2>/dev/null || status=1
    grep -E '(warning|error):' "$findings" | sort -u || true
fi
if command -v cppcheck >/dev/null; then
    ran=1
    # shellcheck disable=SC2086
    # (cppcheck reads no system headers, so it has to be told of a macro that is a loop.)
    echo '#define cJSON_ArrayForEach(e, a) for (e = (a)->child; e; e = e->next)' >"$macros"
    cppcheck --enable=warning,performance,portability --inline-suppr --quiet --std=c11 -j "$(nproc)" \
        -I . -D_GNU_SOURCE --include="$macros" \
        --suppress=missingIncludeSystem --error-exitcode=1 $files 2>"$findings" || status=1
    cat "$findings"
fi
tests/prose.sh || status=1
[ "$ran" = 1 ] || [ "$status" = 1 ] || { echo "analyze: neither clang-tidy nor cppcheck is installed" && exit 77; }
[ "$status" = 0 ] && echo "analyze: $(echo "$files" | wc -l) files, no findings"
exit "$status"
