#!/bin/sh
# equivalence_table.sh: the results of bench/compare/equivalence.awk for given rows of compare_tensors: which pairs of
# runs count as equal. Tensors that were not compared never count as equal.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)

# expect STATUS PATTERN REQUIRED TOLERANCE EXPECTED_ROWS ROW...: the exit status, and a line of the output (extended
# regex). A row: tensor,count,max_abs,max_rel,max_ulp,bitwise,max_b.
expect() {
    status=$1 pattern=$2 required=$3 tolerance=$4 rows=$5
    shift 5
    output=$({
        echo tensor,count,max_abs,max_rel,max_ulp,bitwise,max_b
        [ $# = 0 ] || printf '%s\n' "$@"
    } | awk -v model=mlp -v a=dp:2 -v b=ddp:2 -v what=gradient -v step=1 -v expected="$rows" \
        -v required="$required" -v tolerance="$tolerance" -f "$root/bench/compare/equivalence.awk" 2>&1)
    got=$?
    if [ "$got" -ne "$status" ] || ! printf '%s\n' "$output" | grep -Eq -- "$pattern"; then
        printf 'equivalence.awk %s %s, %s rows expected: status %s, expected %s and a line like %s\n%s\n' \
            "$required" "$tolerance" "$rows" "$got" "$status" "$pattern" "$output"
        exit 1
    fi
}

same=w,6,0,0,0,1,100 near=v,2,9e-06,1e-06,8,0,10 far=u,2,0.5,0.05,90000,0,10
expect 0 '^mlp,dp:2,ddp:2,gradient,1,w,6,0,0,0,1,bitwise,0,1$' bitwise 0 1 "$same"
expect 1 'differ$' bitwise 0 2 "$same" "$near"
expect 1 'differ$' bitwise 1e-4 2 "$same" "$near" # the tolerance does not apply to bits
expect 0 ',v,2,.*,tolerance,1e-6,1$' tolerance 1e-6 2 "$same" "$near"
expect 1 '1 of 2 tensors differ by more than the tolerance' tolerance 1e-6 2 "$same" "$far"
expect 1 'differ by more' tolerance 1e-7 1 "$near"

# NaN never passes, as a number or as a word.
expect 1 'differ' tolerance 1e30 1 w,6,nan,nan,nan,0,100
expect 1 'differ' tolerance 1e30 1 w,6,-nan,-nan,nan,0,100
expect 1 'differ' tolerance 1e30 1 w,6,inf,inf,5,0,100

# Nothing, too few tensors, or only zeros were compared.
expect 1 '0 of 0 tensors were compared' bitwise 0 0
expect 1 '0 of 2 tensors were compared' bitwise 0 2
expect 1 '1 of 2 tensors were compared' bitwise 0 2 "$same"
expect 1 'all values are zero' bitwise 0 1 w,6,0,0,0,1,0

# Buffers are named as such in the table.
expect 0 ',buffer,1,bn1.running_mean,' bitwise 0 2 "$same" bn1.running_mean,4,0,0,0,1,3
echo "equivalence.awk: all tables got the answer they should"
