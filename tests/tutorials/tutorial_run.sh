#!/bin/sh
# tutorial_run.sh BIN_DIR NN-step [quick]: tutorials/run with a step's solutions trains with the bits of the step's own
# functions, and counts their calls; with a planted wrong version (planted.csv) it names the training step, the tensor
# and the function. quick: one planted version; step 02 also tests files that fail.
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tests/programs/checks.sh"
step=$2 quick=${3:-}
TUTORIAL_BUILD=$(cd "$bin/.." && pwd) TUTORIAL_WORK="$work/a student's work"
export TUTORIAL_BUILD TUTORIAL_WORK
exercises=$source/tutorials/$step/exercises
mine=$TUTORIAL_WORK/$step
mkdir -p "$mine"

solutions() {
    rm -f "$mine"/*
    for solved in $(sed -n 's/^run \([^:]*\):.*/\1/p' "$source/tutorials/$step"/*.run); do cp "$exercises/$solved.c" "$mine"; done
}
try() { # STATUS [OPTION...]
    checks=$((checks + 1))
    wanted=$1 status=0
    shift
    "$source/tutorials/run" "$step" "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "status $status, not $wanted: $(cat out.txt err.txt)"
}
says() { grep -qF -- "$1" out.txt || fail "no \"$1\": $(cat out.txt err.txt)"; }
never() { ! grep -qF -- "$1" out.txt || fail "\"$1\": $(cat out.txt)"; }

# ---- solutions ---------------------------------------------------------------------------------------------
solutions
try 0
for function in $(sed -n 's/^run [^:]*: //p' "$source/tutorials/$step"/*.run); do
    grep -qE "^  function  $function: [1-9][0-9]* calls? of yours" out.txt || fail "$function: no calls were counted: $(cat out.txt)"
done
grep -qE '^  (weights   the same bits|weights   within|printed   the same)' out.txt || fail "$(cat out.txt)"

# ---- planted versions --------------------------------------------------------------------------------------
planted=0
while IFS=, read -r at exercise version at_step words function; do
    [ "$at" = "$step" ] || continue
    [ -z "$quick" ] || [ "$planted" = 0 ] || continue
    planted=$((planted + 1))
    solutions
    awk -v name="$version" -f "$source/tutorials/grading/versions.awk" "$exercises/$exercise.wrong" "$exercises/$exercise.c" >"$mine/$exercise.c" ||
        fail "$version cannot be made"
    try 1
    says "${at_step:+first in training step $at_step, tensor }$words"
    says "$function ($exercise): alone among ours, it makes the difference"
    [ "$(grep -c 'alone among ours' out.txt)" = 1 ] || fail "others are blamed, too: $(cat out.txt)"
    echo "$step $exercise $version:" && sed 's/^/    /' out.txt
done <"$source/tests/tutorials/planted.csv"
[ "$planted" -gt 0 ] || fail "nothing was planted"

# ---- invalid files -----------------------------------------------------------------------------------------
if [ "$step" = 02-shards ]; then
    rm -f "$mine"/*
    try 1
    says '01-shard-bounds: there is no file yet (tutorials/start 02): ours runs'
    says 'Nothing of yours runs yet.'
    "$source/tutorials/start" 02 >out.txt
    try 1
    says '01-shard-bounds: still the starter file: ours runs'
    cp "$exercises/01-shard-bounds.c" "$mine"
    try 0 --shards 3 --steps 2 # the step's own functions replace missing ones
    says 'function  shard_bounds: 6 calls of yours'
    says '02-sum-shards: still the starter file: ours runs'
    never 'sum_shards:'
    cp "$exercises/01-shard-bounds.c" "$mine/01-shard-bounds.c" && sed -i 's/size_t length =/int *p = 0; *p = 1; &/' "$mine/01-shard-bounds.c"
    try 1
    says 'rank 0 was in shard_bounds: it used memory that is not there'
    sed -i 's/int \*p = 0; \*p = 1;/for (volatile int i = 0;;) (void)i;/' "$mine/01-shard-bounds.c"
    if [ -z "$quick" ]; then
        try 1
        says 'It did not end within 20 seconds: rank 0 was in shard_bounds.'
    fi
    # Processes that a file starts are ended with it, also without bubblewrap.
    mark=left-by-$$
    { printf '#include <unistd.h>\n#include "tutorials/02-shards/exercises/01-shard-bounds.h"\n' && echo "__attribute__((constructor)) static void leave(void) {" &&
        echo "if (fork() == 0) { setsid(); if (fork() == 0) execl(\"/bin/sh\", \"$mark\", \"-c\", \"sleep 300; true\", \"$mark\", (char *)0); _exit(0); } }" &&
        cat "$exercises/01-shard-bounds.c"; } >"$mine/01-shard-bounds.c"
    mkdir without && printf '#!/bin/sh\nexit 1\n' >without/bwrap && chmod +x without/bwrap
    path=$PATH
    PATH=$work/without:$PATH
    try 0 --shards 3 --steps 2
    PATH=$path
    ! pgrep -f "$mark" >/dev/null || fail 'a process was left behind'
    echo 'no C' >"$mine/01-shard-bounds.c"
    try 1
    says '01-shard-bounds does not compile'
    printf '#include "tutorials/02-shards/exercises/01-shard-bounds.h"\n' >"$mine/01-shard-bounds.c"
    try 1
    says 'shard_bounds is not defined in your file'
    checks=$((checks + 1)) status=0
    "$source/tutorials/run" 06 >out.txt 2>&1 || status=$?
    [ "$status" = 2 ] || fail "status $status of a step whose exercises are calculations"
    says "no exercise's function is a part of step 06's program"
fi
tally "tutorial_run $step"
