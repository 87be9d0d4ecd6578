#!/bin/sh
# tutorial_handout.sh BIN_DIR: tutorials/handout writes a copy without solutions and teachers' files and with everything
# else; in it a student can start, get hints, grade, and configure a build. tutorials/README.md names every package that
# the build needs.
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tests/programs/checks.sh"
TUTORIAL_BUILD=$(cd "$bin/.." && pwd)
export TUTORIAL_BUILD
copy="$work/my class"

run 'a handout' "$source/tutorials/handout" "$copy"
grep -q ' exercises, and no solutions' out.txt || fail "another message: $(cat out.txt)"
[ ! -e "$copy/.git" ] || fail "the history was handed out"

# ---- differences -------------------------------------------------------------------------------------------
# Every file of the project that the copy lacks or changes is listed in the script.
(cd "$source" && find . '(' -path './.git' -o -path './build*' -o -path './bench/out*' -o -path ./play -o -path ./first-contact \
    -o -path ./tutorials/work -o -name __pycache__ ')' -prune -o -type f -print) >"$work/files"
while IFS= read -r file; do
    cmp -s "$source/$file" "$copy/$file" || echo "${file#./}"
done <"$work/files" | sed -E '/\.stub\.c$|\.grade\.c$/b
    s,^tests/own/.*,tests/own,; s,^tutorials/teaching/.*,tutorials/teaching,; s,^tutorials/[^/]*/exercises/[^/]*\.(wrong|right)$,version,; s,^tutorials/[^/]*/exercises/[^/]*\.c$,solution,' |
    sort -u >"$work/differ"
cat >"$work/wanted" <<'END'
README.md
solution
tests/own
tutorials/README.md
tutorials/README.zh.md
tutorials/class
tutorials/handout
tutorials/predictions.csv
tutorials/teacher.md
tutorials/teacher.zh.md
tutorials/teaching
version
END
checks=$((checks + 1))
LC_ALL=C sort "$work/wanted" | diff - "$work/differ" || fail "these files differ"

# No exercise has its solution, and each has the file that `start` writes.
for stub in "$copy"/tutorials/*/exercises/*.stub.c; do
    checks=$((checks + 1))
    name=${stub#"$copy/"}
    ! cmp -s "$source/${name%.stub.c}.c" "$copy/${name%.stub.c}.c" || fail "${name%.stub.c} has its solution"
    ! grep -q 'SOLUTION' "$copy/${name%.stub.c}.c" || fail "${name%.stub.c} still has its marks"
done
[ -z "$(find "$copy/tutorials" -name '*.wrong' -o -name '*.right')" ] || fail "there are wrong or right versions of solutions"
[ "$(cut -d , -f 3 "$copy/tutorials/predictions.csv" | sort -u)" = "$(printf '\nvalue')" ] || fail "the right predictions were handed out"
for page in "$copy"/README.md "$copy"/tutorials/README.md "$copy"/tutorials/README.zh.md; do
    for file in $(grep -oE '\]\([^):#]+\)' "$page" | sed 's/^](//; s/)$//'); do
        [ -e "$(dirname "$page")/$file" ] || fail "$page: the link to $file leads nowhere"
    done
done

# ---- commands that work in the copy ------------------------------------------------------------------------
mine="$copy/tutorials/work/02-shards/03-batch-mean.c"
run 'start' "$copy/tutorials/start" 02
TUTORIAL_WORK=$work/ours "$source/tutorials/start" 02 >/dev/null
cmp "$mine" "$work/ours/02-shards/03-batch-mean.c" || fail "start writes another file there"
run 'a hint' "$copy/tutorials/hint" 02 3
checks=$((checks + 1))
! "$copy/tutorials/grade" 02 3 >out.txt 2>&1 || fail "the starter file gets all points"
grep -qx 'Score 0/10' out.txt || fail "no score: $(cat out.txt)"
cp "$source/tutorials/02-shards/exercises/03-batch-mean.c" "$mine"
run 'grading a solution' "$copy/tutorials/grade" 02 3
run 'configuring a build' cmake -S "$copy" -B build -DWITH_CUDA=OFF -DWITH_MPI=OFF
run 'the tests of the copy' ctest --test-dir build -N
! grep -E ' (grade_|tutorial_)' out.txt || fail "the copy has tests that need solutions"

# Students' own copies: starter files contain the student's name, and class reports a file of another student.
run 'two copies' "$source/tutorials/handout" "$work/class of two" anna bert
[ "$(grep -c ' exercises, and no solutions' out.txt)" = 2 ] || fail "not two copies: $(cat out.txt)"
run "anna's files" "$work/class of two/anna/tutorials/start" 02
[ "$(head -n 1 "$work/class of two/anna/tutorials/work/02-shards/03-batch-mean.c")" = '// for anna' ] || fail "whose file is it?"
for student in anna bert; do
    mkdir -p hand-ins/$student
    cp -R "$work/class of two/anna/tutorials/work/02-shards" hand-ins/$student/
done
run 'a class of two' "$source/tutorials/class" hand-ins 02/3
[ "$(cat err.txt)" = 'class: bert: 02-shards/01-shard-bounds.c was begun in the copy of anna
class: bert: 02-shards/02-sum-shards.c was begun in the copy of anna
class: bert: 02-shards/03-batch-mean.c was begun in the copy of anna' ] || fail "other words on copies: $(cat err.txt)"

# ---- commands that are refused -----------------------------------------------------------------------------
for arguments in '' --what "--seed 1 $work/x" "--seed" "$work" 'one two/three' 'one .' "$source/inside"; do
    checks=$((checks + 1)) status=0
    # shellcheck disable=SC2086
    "$source/tutorials/handout" $arguments >/dev/null 2>&1 || status=$?
    [ "$status" = 2 ] || fail "status $status of handout $arguments"
done
[ ! -e "$source/inside" ] || fail "a folder was left in the project"

# ---- packages ----------------------------------------------------------------------------------------------
# (gcc installs libc6-dev as a recommended package.)
for package in $(sed -n '/^        build)/,/^        emulator)/s/.*echo \([a-z0-9-]*\)$/\1/p' "$source/bench/setup.sh"); do
    checks=$((checks + 1))
    [ "$package" = libc6-dev ] || grep -q "apt-get install .*\b$package\b" "$source/tutorials/README.md" ||
        fail "tutorials/README.md does not name the package $package"
done
tally tutorial_handout
