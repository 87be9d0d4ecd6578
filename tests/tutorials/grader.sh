#!/bin/sh
# grader.sh BIN_DIR STEP/EXERCISE [quick]: tests a grader. The solution gets all points, the stub does not, and every
# wrong version gets its own sentence (versions.awk). Right versions in another style, if there are any, get all points.
# quick: one wrong version only.
set -eu
build=$(cd "$1/.." && pwd)
step=${2%/*} exercise=${2#*/} quick=${3:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tutorials
TUTORIAL_BUILD=$build TUTORIAL_WORK=$(mktemp -d)
export TUTORIAL_BUILD TUTORIAL_WORK
trap 'rm -rf "$TUTORIAL_WORK"' EXIT
. "$here/common.sh"
folder=$here/$step/exercises
mkdir "$TUTORIAL_WORK/$step"
versions=0 failures=0

fail() {
    echo "FAILED: $*"
    cat "$TUTORIAL_WORK/out"
    failures=$((failures + 1))
}

grade() { "$here/grade" "$step" "${exercise%%-*}" >"$TUTORIAL_WORK/out" 2>&1; }

cp "$folder/$exercise.c" "$TUTORIAL_WORK/$step/"
grade || fail "the solution does not get all points"
[ "$(grep -c '^## ' "$folder/$exercise.hints.md")" -ge 2 ] || fail "there are not two hints"

rm "$TUTORIAL_WORK/$step/$exercise.c"
"$here/start" "$step" "${exercise%%-*}" >"$TUTORIAL_WORK/out" || fail "start fails"
! grade || fail "the starter file gets all points"
grep -q '^  MISS' "$TUTORIAL_WORK/out" || fail "the starter file misses no check"
! grep -qE 'does not compile|cannot be loaded|warning:' "$TUTORIAL_WORK/out" || fail "the starter file does not compile cleanly"

version() { # KIND NAME: writes the student's file: the solution with this version's replacements
    awk -v name="$2" -f "$here/grading/versions.awk" "$folder/$exercise.$1" "$folder/$exercise.c" >"$TUTORIAL_WORK/$step/$exercise.c" ||
        fail "$2 cannot be made"
}
versions_of() { # KIND: prints a line for each: name, tab, sentence
    [ ! -e "$folder/$exercise.$1" ] || awk -v list=1 -f "$here/grading/versions.awk" "$folder/$exercise.$1"
}

versions_of wrong >"$TUTORIAL_WORK/wrong"
while IFS="$(printf '\t')" read -r name sentence; do
    [ -n "$sentence" ] || fail "$name has no sentence"
    version wrong "$name"
    ! grade || fail "$name gets all points"
    grep -qF -- "${sentence%.}" "$TUTORIAL_WORK/out" || fail "$name is not told: $sentence"
    echo "$name: $sentence"
    versions=$((versions + 1))
    [ -z "$quick" ] || break
done <"$TUTORIAL_WORK/wrong"
versions_of right >"$TUTORIAL_WORK/right"
while IFS="$(printf '\t')" read -r name sentence; do
    [ -z "$quick" ] || break
    version right "$name"
    grade || fail "$name ($sentence) does not get all points"
done <"$TUTORIAL_WORK/right"
[ -n "$quick" ] || [ "$versions" -ge 4 ] || fail "$versions wrong versions are too few"
echo "$2: $versions wrong versions, $failures failures"
[ "$failures" = 0 ]
