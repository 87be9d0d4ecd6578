#!/bin/sh
# tutorial_teaching.sh BIN_DIR: teachers' material. The answers of the exam bank are the programs' own, for several
# students' numbers; a handout's questions have the student's numbers, and their answers are graded; each exercise has a
# duration; the files for Gradescope and GitHub Classroom conform to their schemas. Without python3: skipped.
root=$(cd "$(dirname "$0")/../.." && pwd)
tutorials=$root/tutorials teaching=$root/tutorials/teaching
. "$root/tests/programs/checks.sh"
TUTORIAL_BUILD=$(cd "$bin/.." && pwd)
export TUTORIAL_BUILD
command -v python3 >/dev/null && python3 -c 'import tomllib' 2>/dev/null || {
    echo "skipped: no python3 of 3.11"
    exit 77
}

# ---- the exam bank -----------------------------------------------------------------------------------------
for seed in '' anna; do
    # shellcheck disable=SC2086
    run "answers, seed '$seed'" "$teaching/exam" --check $seed
    grep -qE '^exam: (2[5-9]|3[0-9]) of 45 answers checked, 0 differ$' out.txt || fail "other answers: $(cat out.txt)"
done
sed 's/^answer = "rows"$/answer = "rows - 1"/' "$teaching/exam.toml" >planted.toml
mkdir -p planted/teaching && cp planted.toml planted/teaching/exam.toml && cp "$teaching/exam" planted/teaching/
for folder in "$tutorials"/[0-9][0-9]-*; do mkdir "planted/${folder##*/}"; done
checks=$((checks + 1))
! planted/teaching/exam --check >out.txt 2>&1 && grep -q '^question 4 .*the answer is 59, and the program says .60' out.txt || fail "a wrong answer passes: $(cat out.txt)"
for lang in en zh; do
    run "the paper in $lang" "$teaching/exam" --lang $lang --answers
    checks=$((checks + 2))
    [ "$(grep -c '^## ' out.txt)" = 45 ] || fail "not 45 questions"
    ! grep -n '[{}]' out.txt | grep -v '[$]{' || fail "a number was not filled in"
done
run 'handouts' "$tutorials/handout" --seed 2026 "$work/class" anna bert
checks=$((checks + 4))
[ "$(grep -c '^## ' class/anna/tutorials/questions.md)" -ge 20 ] || fail "too few questions"
[ "$(grep -c '^## ' class/anna/tutorials/questions.zh.md)" = "$(grep -c '^## ' class/anna/tutorials/questions.md)" ] || fail "not as many in Chinese"
! cmp -s class/anna/tutorials/questions.md class/bert/tutorials/questions.md || fail "two students have the same numbers"
! grep -q 'Answer:' class/anna/tutorials/questions.md || fail "the answers were handed out"
"$teaching/exam" --seed 2026 anna --answers >key.md
mkdir -p hand-ins/anna hand-ins/bert
awk '/^## / { number = $3 } /^Answer: \*\*/ { split($0, part, "[*][*]"); gsub(/,/, "", part[2]); print number "," part[2] }' key.md >hand-ins/anna/answers.csv
cp hand-ins/anna/answers.csv hand-ins/bert/
run 'grading answers' "$teaching/exam" --grade 2026 hand-ins
all=$(wc -l <hand-ins/anna/answers.csv)
checks=$((checks + 2))
grep -qE "^anna +$all of $all\$" out.txt || fail "anna has not all right: $(cat out.txt)"
! grep -qE "^bert +$all of" out.txt || fail "anna's answers are right for bert, too"

# ---- minutes -----------------------------------------------------------------------------------------------
run 'minutes' "$teaching/minutes"
checks=$((checks + 1))
sums=$(awk -F'|' 'FNR == NR { if ($2 ~ /^ \[/) of[substr($2, 3, 2) + 0] = $5; next }
    NF == 8 && $4 ~ /^ [0-9]+ $/ && $7 ~ /^ [0-9]+ $/ {
        sum = 0
        count = split($3, steps, ",")
        for (k = 1; k <= count; k++) sum += of[steps[k] + 0]
        print $2 + 0, $4 + 0, 5 * int(0.4 * sum / 5 + 0.5)
    }' "$teaching/../README.md" "$teaching/../teacher.md")
echo "$sums" | awk '$2 != $3 { exit 1 } END { exit NR != 6 }' || fail "teacher.md: session, minutes to read, two fifths of the pages': $sums"
[ $(($(wc -l <"$teaching/minutes.csv"))) = "$(wc -l <out.txt)" ] || fail "minutes.csv has rows of no exercise"

# ---- Gradescope, GitHub Classroom --------------------------------------------------------------------------
step=$(basename "$tutorials"/[0-9][0-9]-shards) number=${step%%-*}
mkdir -p ag/submission/work/"$step" ag/project
cp "$tutorials/$step"/exercises/01-*s.c ag/submission/work/"$step"/
echo 'no C' >"ag/submission/work/$step/02-sum-shards.c"
run 'the results' "$teaching/gradescope" --results ag/submission/work "$number"
mv out.txt results.json
run 'a workflow' "$teaching/classroom" "$number" "$number/1"
mv out.txt classroom.yml
checks=$((checks + 1))
grep -q "command: tutorials/grade $number 03" classroom.yml || fail "not all exercises of a step: $(cat classroom.yml)"
run 'a workflow' "$teaching/classroom" "$number"
mv out.txt classroom.yml
grep -q '"score": 10' results.json && grep -q 'does not compile' results.json || fail "other results: $(cat results.json)"
for pair in results:results.json classroom:classroom.yml; do
    status=0 checks=$((checks + 1))
    PATH=/usr/bin:$PATH python3 "$root/tests/tutorials/check_schema.py" "$root/tests/tutorials/${pair%:*}.schema.json" "${pair#*:}" >out.txt || status=$?
    [ $status = 0 ] || [ $status = 77 ] || fail "${pair#*:}: $(cat out.txt)"
    [ $status != 77 ] || cat out.txt
done
if [ -e "$root/.git" ] && command -v zip unzip >/dev/null; then
    run 'an autograder' "$teaching/gradescope" "$work/autograder.zip" "$number"
    unzip -q autograder.zip -d ag/source
    checks=$((checks + 2))
    tar -tf ag/source/project.tar | grep -qx tutorials/teaching/gradescope || fail "the project is not in the autograder"
    bash -n ag/source/setup.sh || fail "setup.sh is no script"
    rm -r ag/project && ln -s "$root" ag/project
    AUTOGRADER=$PWD/ag run 'a hand-in' ag/source/run_autograder
    cmp ag/results/results.json results.json || fail "the autograder says something else"
fi
for arguments in 'exam --what' 'exam 99' 'exam --lang fr' 'minutes 99' 'gradescope' 'gradescope x.zip' 'gradescope x.zip 99' 'gradescope --results none 02' 'classroom' 'classroom 99'; do
    status=0 checks=$((checks + 1))
    # shellcheck disable=SC2086
    "$teaching"/$arguments >/dev/null 2>&1 || status=$?
    [ "$status" = 2 ] || fail "status $status of $arguments"
done
tally tutorial_teaching
