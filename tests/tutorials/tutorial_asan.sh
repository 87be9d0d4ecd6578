#!/bin/sh
# tutorial_asan.sh BIN_DIR: grade --asan gives every solution all points; a read outside an array (which guards do not
# detect), a use after free, and undefined behaviour fail their checks and are reported with their lines.
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tests/programs/checks.sh"
TUTORIAL_BUILD=$(cd "$bin/.." && pwd) TUTORIAL_WORK=$work/mine
export TUTORIAL_BUILD TUTORIAL_WORK
if grep -q "sanitize='.*[a-z]" "$TUTORIAL_BUILD/tutorials/settings.sh"; then
    echo "tutorial_asan: this build has a sanitizer: nothing to be tested"
    exit 0
fi

total=0
for grader in "$source"/tutorials/[0-9]*/exercises/*.grade.c; do
    solution=${grader%.grade.c}.c step=${grader%/exercises/*}
    mkdir -p "$TUTORIAL_WORK/${step##*/}"
    cp "$solution" "$TUTORIAL_WORK/${step##*/}"
    total=$((total + 1))
done
checks=$((checks + 1))
"$source/tutorials/grade" --all --asan >out.txt 2>&1 || fail "a solution: $(grep -B 5 -A 3 MISS out.txt)"
[ "$(grep -c '^Score 10/10$' out.txt)" = $total ] || fail "$(grep -c '^Score 10/10$' out.txt) of $total have all points"

# plant 'SED SCRIPT' 'WORDS': plants a mistake in 02/2 that gets all points without --asan
plant() {
    checks=$((checks + 2))
    sed "$1" "$source/tutorials/02-shards/exercises/02-sum-shards.c" >"$TUTORIAL_WORK/02-shards/02-sum-shards.c"
    run "$2, unseen" "$source/tutorials/grade" 02 2
    ! "$source/tutorials/grade" 02 2 --asan >out.txt 2>&1 || fail "$2: all points"
    grep -qF 'A sanitizer ended it' out.txt && grep -qE "^  .*$2.*02-sum-shards.c:[0-9]+|^  .*02-sum-shards.c:[0-9]+.*$2" out.txt || fail "no $2: $(cat out.txt)"
}
plant 's/^    for (size_t i = 0.*/    volatile float *own = malloc(4); volatile int one = 1; bool odd = own[one] == 1; free((void *)own); if (odd) return;\n&/; s/^#include .*/&\n#include <stdbool.h>\n#include <stdlib.h>/' 'insufficient space'
plant 's/^    for (size_t i = 0.*/    volatile float *old = malloc(4); free((void *)old); if (*old == 1) return;\n&/; s/^#include .*/&\n#include <stdlib.h>/' 'heap-use-after-free'
plant 's/^    for (size_t i = 0.*/    volatile int most = 2147483647; most = most + 1;\n&/' 'signed integer overflow'
plant 's/^    for (size_t i = 0.*/    volatile float own[4]; volatile int four = 4; own[four] = 1;\n&/' 'out of bounds'
tally tutorial_asan
