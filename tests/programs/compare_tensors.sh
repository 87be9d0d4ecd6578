#!/bin/sh
# compare_tensors.sh BIN: the program compare_tensors on pairs of files with one known difference. Ends with 1 at the
# first wrong answer.
set -u
bin=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$bin/make_tensors" "$folder" || exit 1

# expect STATUS PATTERN ARGUMENT...: the exit status, and a line of the output (extended regex).
expect() {
    status=$1 pattern=$2
    shift 2
    output=$(cd "$folder" && "$bin/compare_tensors" "$@" 2>&1)
    got=$?
    if [ "$got" -ne "$status" ] || ! printf '%s\n' "$output" | grep -Eq -- "$pattern"; then
        printf 'compare_tensors %s: status %s, expected %s and a line like %s\n%s\n' \
            "$*" "$got" "$status" "$pattern" "$output"
        exit 1
    fi
}

expect 0 '^result: equal bits \(3 tensors\)$' base base
expect 0 '^result: equal bits' base base --bitwise
expect 0 '^w  .* 7\.629e-06 +7\.629e-08 +1 +1\.0000000000$' base one_ulp
expect 0 '^result: within tolerance: worst tensor w \(max \|a-b\| 7\.629e-06\); 0 of 3' base one_ulp
expect 1 '^result: differ: worst tensor w .*; 1 of 3 tensors failed$' base one_ulp --bitwise
expect 1 '^result: differ: worst tensor w ' base one_ulp --tol 1e-6 --rtol 0
expect 1 '^result: differ: worst tensor w ' base far
expect 0 '^result: within tolerance' base far --tol 0.011 --rtol 0
expect 0 '^result: within tolerance' base far --tol 0 --rtol 1.1e-4
expect 1 '^result: differ' base far --tol 0.009 --rtol 0

# +0 and -0 have distance 0 but different bits.
expect 0 '^b,2,0,0,0,0,7$' base minus_zero --csv
expect 1 '^result: differ: worst tensor b ' base minus_zero --bitwise

# NaN never passes, even against itself; infinity passes only against itself.
expect 1 '^result: differ: worst tensor w \(holds NaN\)' nan nan --bitwise
expect 1 '^w,6,nan,nan,nan,0,100$' base nan --csv --tol 1e30
expect 0 '^result: equal bits' infinite infinite
expect 1 '^result: differ: worst tensor w ' base infinite --tol 1e30 --rtol 1
expect 1 '^result: differ: worst tensor w ' infinite base --tol 1e30 --rtol 1

# Integers must be equal for any tolerance.
expect 1 '^result: differ: worst tensor step ' base step --tol 100
expect 1 '^step,3,2,0\.222222222,2,0,40$' base step --csv
expect 1 '^step  .* 2  +0\.2222 +2 +0\.9987497649$' base step

expect 1 '^result: differ: worst tensor w \(has another dtype or shape in B\)' base shape
expect 1 '^w  .* 6  has another dtype or shape in B$' base shape
expect 1 '^step .* 3  missing in B$' base fewer
expect 1 '^step .* 3  missing in A$' fewer base
expect 1 '^result: differ: worst tensor extra, "quoted" \(missing in A\); 1 of 4' base more --tol 1e30
expect 1 '^"extra, ""quoted""",0,nan,nan,nan,0,0$' base more --csv

# The cosine of a zero tensor with another one is 0, of two zero tensors 1.
expect 1 '^b  .* 0\.0000000000$' base zeros
expect 0 '^b  .* 1\.0000000000  same bits$' zeros zeros

# The time is linear in the number of tensors: quadratic time would exceed the limit, which counts CPU seconds.
(ulimit -t 10; cd "$folder" && "$bin/compare_tensors" many many_reversed) >"$folder/answer" 2>&1 || {
    echo "65536 tensors: status $?: $(tail -n 1 "$folder/answer")"
    exit 1
}
grep -q '^result: equal bits (65536 tensors)$' "$folder/answer" || exit 1

expect 0 '^result: equal bits \(1 tensor\)$' base step --only w
expect 0 '^tensor,count,max_abs,max_rel,max_ulp,bitwise,max_b$' base base --csv
expect 2 '^error: there is no tensor to compare' base base --only zebra
expect 2 '^error: none: No such file' base none
expect 2 '^error: two files are needed' base
expect 2 '^error: unexpected argument' base base base
expect 2 '^error: --tol: .-1. is out of range' base base --tol -1
expect 2 '^usage: compare_tensors ' # no arguments
status=0 # a failing write of the output is an error
(cd "$folder" && "$bin/compare_tensors" base base >/dev/full 2>answer) || status=$?
[ "$status" = 1 ] && grep -q '^error: lines on standard output were lost: No space' "$folder/answer" || {
    echo "a full device: status $status: $(cat "$folder/answer")"
    exit 1
}
echo "compare_tensors: all pairs got the answer they should"
