#!/bin/sh
# tutorial_grader.sh BIN_DIR: the grader's options, and its exit status for a solution and for a file that writes where it
# may not.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
grader=$bin/tutorial_grader exercise=02-shards/01-shard-bounds
solution=$root/tutorials/02-shards/exercises/01-shard-bounds.c
library() { cc -std=c11 -D_GNU_SOURCE -shared -fPIC -I "$root" "$@" || fail "cc $*"; }
library -o right.so "$solution"
library -o empty.so -x c /dev/null

for words in '' "$exercise" '--points' "--points $exercise right.so"; do
    # shellcheck disable=SC2086 # several words
    refuse 2 'an exercise and a compiled file are needed; see --help' "$grader" $words
done
refuse 2 "unexpected argument 'third'" "$grader" "$exercise" right.so third
refuse 2 'unknown option --nothing' "$grader" --nothing "$exercise" right.so
refuse 2 'there is no exercise 02-shards/01' "$grader" 02-shards/01 right.so

# prints STATUS 'LINE' COMMAND...: the last line of the output is this one
prints() {
    checks=$((checks + 1)) wanted=$1 line=$2 status=0
    shift 2
    "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "status $status, not $wanted: $*: $(cat out.txt err.txt)"
    [ "$(tail -n 1 out.txt)" = "$line" ] || fail "\"$(cat out.txt)\" does not end with \"$line\": $*"
}
points=$("$grader" --points "$exercise")
[ "$points" -gt 0 ] || fail "$points points"
prints 0 "$points" "$grader" --points "$exercise"
prints 0 "Score $points/$points" "$grader" "$exercise" ./right.so
prints 1 "Score 0/$points" "$grader" "$exercise" ./empty.so
prints 1 "Score 0/$points" "$grader" "$exercise" ./none.so
prints 0 '' "$grader" --json "$exercise" ./right.so
[ "$(head -n 2 out.txt | tr -d '\n')" = "{  \"exercise\": \"$exercise\"," ] || fail "--json: $(cat out.txt)"

# The box: a file that is written when a student's code is loaded
cat >open.c <<END
#include <stdio.h>
__attribute__((constructor)) static void leave(void) {
    FILE *file = fopen("$work/left", "w");
    if (file) fclose(file);
}
END
library -o writes.so "$solution" open.c
prints 0 "Score $points/$points" "$grader" --no-box "$exercise" ./writes.so
checks=$((checks + 1))
[ -f left ] || fail "--no-box: the file was not written"
rm -f left
run 'the box is described' "$grader" --box
[ "$(wc -l <out.txt)" = 1 ] && [ ! -s err.txt ] || fail "--box: $(cat out.txt err.txt)"
if grep -q 'writes nothing' out.txt; then
    prints 0 "Score $points/$points" "$grader" "$exercise" ./writes.so
    [ ! -f left ] || fail "the box let a file be written"
fi
tally tutorial_grader
