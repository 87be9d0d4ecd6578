#!/bin/sh
# grader.sh BIN_DIR STEP/EXERCISE [quick]: the grader is graded. The solution gets all points, the stub does not,
# and every wrong version is answered with the sentence in its first comment. Right versions in another style, where
# there are some, get all points. quick: one wrong version only.
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

for wrong in "$folder/$exercise.wrong"/*.c; do
    sentence=$(sed -n '1s,^/\* \(.*\) \*/$,\1,p' "$wrong")
    assemble "$folder/$exercise.c" "$wrong" >"$TUTORIAL_WORK/$step/$exercise.c"
    [ -n "$sentence" ] || fail "$wrong does not begin with its sentence"
    ! grade || fail "$wrong gets all points"
    grep -qF -- "${sentence%.}" "$TUTORIAL_WORK/out" || fail "$wrong is not told: $sentence"
    echo "$(basename "$wrong" .c): $sentence"
    versions=$((versions + 1))
    [ -z "$quick" ] || break
done
for right in "$folder/$exercise.right"/*.c; do
    [ -z "$quick" ] && [ -e "$right" ] || break
    assemble "$folder/$exercise.c" "$right" >"$TUTORIAL_WORK/$step/$exercise.c"
    grade || fail "$right does not get all points"
done
[ -n "$quick" ] || [ "$versions" -ge 4 ] || fail "$versions wrong versions are too few"
echo "$2: $versions wrong versions, $failures failures"
[ "$failures" = 0 ]
