#!/usr/bin/env bash
# allreduce_section.sh BIN: a small run of bench/allreduce.sh, in which the program's output, the table and the drawn
# figure agree. Times are not judged. Sentences about the numbers: tests/report/test_allreduce.py.
set -euo pipefail
export LC_ALL=C
bin=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failures=0

# expect WHAT WANTED GOT
expect() {
    [[ $2 != "$3" ]] || return 0
    printf '%s:\n%s\nnot\n%s\n' "$1" "$3" "$2"
    failures=$((failures + 1))
}

# A small run.
results="$out/small results"
bench/allreduce.sh --quick --bin "$bin" --out "$results" >"$out/log" 2>&1 || { cat "$out/log" && exit 1; }
grep -E '^(shm|mpi) +[0-9]+ ([KM]i)?B ' "$out/log" >"$out/table"
for backend in $(tail -n +2 "$results/allreduce.csv" | cut -d, -f1 | uniq); do
    printed=$results/runs/$backend-sweep-1/output.txt
    expect "sizes of $backend" "4 256 16384 1048576 4194304" "$(awk '!/^#/ && $1 != "bytes" { print $1 }' "$printed" | paste -sd ' ')"
    grep -q " backend=$backend\$" "$printed" || expect "the backend" "$backend" "$(head -n 1 "$printed")"
    expect "wrong elements of $backend" 5 "$(awk '!/^#/ && $NF == 0' "$printed" | wc -l)"
    expect "times of $backend in the table" "$(awk '!/^#/ && $1 != "bytes" { print $2, $3, $4 }' "$printed")" \
        "$(awk -v backend="$backend" '$1 == backend { print $4, $5, $6 }' "$out/table")"
done
expect "lines over 80 columns" "" "$(awk 'length($0) > 80 && !/^(the section|MPI is left out)/' "$out/log")"
expect "headings" 1 "$(grep -c '<h2 ' "$results/section.html")"
expect "the sizes of the heading" "## All-reduce, from 4 B to 4 MiB" "$(head -n 1 "$results/section.md")"
grep -q '^round 1 of 1: shm (0 of [12] runs done)$' "$out/log" || expect "progress" "round 1 of 1: shm" "$(cat "$out/log")"
if command -v gnuplot >/dev/null; then
    expect "figures" 1 "$(grep -c '<figure ' "$results/section.html")"
    expect "the title" 1 "$(grep -c '^<title>All-reduce: ' "$results/allreduce.svg")"
    (cd "$results" && gnuplot -e numbers_only=1 plots/allreduce.gp)
    # Compares the bus bandwidths in the table, which has two decimals, with the drawn curves: lines of bytes and
    # bandwidth.
    expect "the drawn lines" "$(awk '$1 == "shm" || $1 == "mpi" { unit = $3 == "MiB" ? 1048576 : $3 == "KiB" ? 1024 : 1
            print $2 * unit, $8 }' "$out/table" | sort)" \
        "$(awk '/^# Curve title: "file using "bytes":line"/ { line = 1; next } /^#/ || !NF { if (!NF) line = 0; next }
            line { printf "%s %.2f\n", $1, $2 }' "$results/plots/allreduce.drawn" | sort)"
    expect "the drawn bound" "$(awk '$1 == "shm" && $NF != "-" { print $2 * 1048576 }' "$out/table")" \
        "$(awk '/^# Curve title: "file using "bytes":"bound""/ { line = 1; next } /^#/ || !NF { if (!NF) line = 0; next }
            line { print $1 }' "$results/plots/allreduce.drawn")"
fi
bench/allreduce.sh --quick --bin "$bin" --out "$results" --resume >"$out/log" 2>&1 || { cat "$out/log" && exit 1; }
grep -q '^kept from before: shm-sweep-1$' "$out/log" || expect "--resume" "a run that was kept" "$(cat "$out/log")"
echo "allreduce_section: $failures failures"
[[ $failures == 0 ]]
