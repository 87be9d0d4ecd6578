#!/bin/sh
# tutorial_class.sh BIN_DIR: tutorials/class ranks students by the gate, by points and by predictions, for any names and
# any files handed in; the expected predictions are those on the pages.
tutorials=$(cd "$(dirname "$0")/../../tutorials" && pwd)
. "$(dirname "$0")/../programs/checks.sh"
TUTORIAL_BUILD=$(cd "$bin/.." && pwd)
export TUTORIAL_BUILD
step=02-shards

student() { # NAME [EXERCISE...]: a student who has solved these
    mkdir -p "class/$1/$step"
    folder="class/$1"
    shift
    for exercise; do cp "$tutorials/$step/exercises/$exercise.c" "$folder/$step/"; done
}
student 'anna the first' 01-shard-bounds 02-sum-shards 03-batch-mean
printf '05,device-1,212184\n5,device-0,102252\n' >"$folder/predictions.csv" # one is half of the right number
student 'berta "b"' 01-shard-bounds 02-sum-shards 03-batch-mean
printf 'step,question,value\r\n05,device-1,212184\r\n05,device-1,1\r\n05,no-such-question,1\r\n05,device-0,many\r\n' >"$folder/predictions.csv"
student carl 01-shard-bounds
student dora 01-shard-bounds
printf '02,rows,60\n05,device-1,1e999\n05,device-0,inf\n' >"$folder/predictions.csv"
student emil # hands in a file that does not compile and one that crashes
echo 'no C at all' >"$folder/$step/01-shard-bounds.c"
sed 's/^double batch_mean(.*{/&\n    *(volatile char *)8 = 1;/' "$tutorials/$step/exercises/03-batch-mean.c" >"$folder/$step/03-batch-mean.c"
mkdir -p class/jonas class/jonas/77-no-such-step

cat >wanted <<'END'
berta "b"                yes       30/30            1   x 1.00
anna the first           yes       30/30            2   x 1.41
dora                     no        10/30            1  x 10.00
carl                     no        10/30            0        -
emil                     no         0/30            0        -
jonas                    no         0/30            0        -
END
run 'a class' "$tutorials/class" class
tail -n +2 out.txt | cmp - wanted || fail "another table: $(cat out.txt)"
run 'a class, as JSON' "$tutorials/class" class 02 --json
grep -qxF '{"student": "berta \"b\"", "gate": true, "score": 30, "points": 30, "predictions": 1, "factor": 1.0000}' out.txt ||
    fail "other JSON: $(cat out.txt)"
[ "$(wc -l <out.txt)" = 6 ] || fail "not six students: $(cat out.txt)"
# Any folder name is one student, and one line of valid JSON.
mkdir -p names/$step
newline=$(printf 'x\ny') tab=$(printf 'x\ty') control=$(printf 'x\001y')
for name in "$newline" "$tab" "$control" 'back\slash' 'Ünïcödé' "$(printf 'no\377utf')"; do
    mkdir -p "names/$name/$step" && cp "$tutorials/$step/exercises/03-batch-mean.c" "names/$name/$step/"
done
rmdir names/$step
run 'names' "$tutorials/class" names 02/3
[ "$(wc -l <out.txt)" = 7 ] && [ "$(grep -c ' yes ' out.txt)" = 6 ] || fail "not six students: $(cat out.txt)"
run 'names, as JSON' "$tutorials/class" names 02/3 --json
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
lines = [json.loads(line) for line in open("out.txt", encoding="utf-8")]
names = {line["student"] for line in lines}
sys.exit(len(lines) != 6 or not {"x\ny", "x\ty", "x\x01y", "back\\slash", "Ünïcödé"} <= names)' || fail "no JSON: $(cat out.txt)"
fi
# Only some exercises of a step count.
run 'two exercises' "$tutorials/class" class 02/1 02/02
grep -qE '^dora +no +10/20 ' out.txt || fail "not two exercises: $(cat out.txt)"
run 'one exercise' "$tutorials/class" class 02/01
grep -qE '^carl +yes +10/10 ' out.txt || fail "not one exercise: $(cat out.txt)"
# Speed is reported for students who pass, and breaks ties.
mkdir -p race/fast/$step race/slow/$step
cp "$tutorials/$step"/exercises/0[1-3]-*[a-z].c race/fast/$step/
rm race/fast/$step/*.grade.c race/fast/$step/*.stub.c
cp race/fast/$step/* race/slow/$step/
sed -i 's/^    for (size_t i = 0; i < count; i++) {/    for (volatile long w = 0; w < 60000000; w++) continue;\n&/' race/slow/$step/02-sum-shards.c
run 'a race' "$tutorials/class" race --speed
awk 'NR == 2 { first = $1; fast = $4 } NR == 3 { exit !(first == "fast" && $1 == "slow" && $4 < fast) }' out.txt ||
    fail "no race: $(cat out.txt)"
for arguments in '' missing '--what class' 'class 77' 'class 02/9'; do
    checks=$((checks + 1)) status=0
    # shellcheck disable=SC2086
    "$tutorials/class" $arguments >/dev/null 2>&1 || status=$?
    [ "$status" = 2 ] || fail "status $status of class $arguments"
done
# The right number is on the page, with or without commas.
tail -n +2 "$tutorials/predictions.csv" | while IFS=, read -r number question value what; do
    sed 's/\([0-9]\),\([0-9]\)/\1\2/g' "$tutorials/$number"-*/README.md | grep -qE "(^|[^0-9.])$value(\.0*)?([^0-9]|\$)" ||
        echo "step $number does not say $value ($question: $what)"
done >unsaid
[ ! -s unsaid ] || fail "$(cat unsaid)"
tally tutorial_class
