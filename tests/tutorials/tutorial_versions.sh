#!/bin/sh
# tutorial_versions.sh BIN_DIR: the wrong and right versions of the exercises match their solutions: each text to be
# replaced occurs in the solution once. An exercise has at least four wrong versions, each with a sentence.
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tests/programs/checks.sh"
apply=$source/tutorials/grading/versions.awk
total=0

for solution in "$source"/tutorials/*/exercises/*.grade.c; do
    solution=${solution%.grade.c}.c
    for kind in wrong right; do
        file=${solution%.c}.$kind
        [ -e "$file" ] || [ $kind = wrong ] || continue
        checks=$((checks + 1))
        awk -v list=1 -f "$apply" "$file" >names || fail "$file"
        [ $kind = right ] || [ "$(wc -l <names)" -ge 4 ] || fail "$file: fewer than four"
        ! grep -q '	$' names || [ $kind = right ] || fail "$file: no sentence: $(grep '	$' names)"
        while IFS='	' read -r name _; do
            total=$((total + 1))
            awk -v name="$name" -f "$apply" "$file" "$solution" >version.c 2>why.txt || fail "$(cat why.txt)"
        done <names
    done
done

# The lines that tutorials/run replaces occur in the programs; all of a step's replacements can be applied together.
for recipe in "$source"/tutorials/*/*.run; do
    checks=$((checks + 1))
    cp "${recipe%.run}.c" program.c
    awk -v list=1 -f "$apply" "$recipe" >names || fail "$recipe"
    while IFS='	' read -r name functions; do
        total=$((total + 1))
        [ -e "${recipe%/*}/exercises/$name.h" ] || fail "$recipe: there is no exercise $name"
        for function in $functions; do
            grep -q "[ *]$function(" "${recipe%/*}/exercises/$name.h" || fail "$recipe: $name.h declares no $function"
        done
        awk -v name="$name" -f "$apply" "$recipe" "${recipe%.run}.c" >/dev/null 2>why.txt || fail "$(cat why.txt)"
        awk -v name="$name" -f "$apply" "$recipe" program.c >version.c 2>why.txt || fail "$(cat why.txt)"
        mv version.c program.c
    done <names
done

# The rule itself.
printf 'a\nb\na\nc\n' >solution
plant() { printf 'wrong it: sentence\n<<<<\n%s\n====\nnew\n>>>>\n' "$1" >file; }
plant b
run 'a version that fits' awk -v name=it -f "$apply" file solution
[ "$(tr '\n' ' ' <out.txt)" = 'a new a c ' ] || fail "another version: $(cat out.txt)"
for find in a d ''; do # occurs twice, not at all, is empty
    plant "$find"
    checks=$((checks + 1))
    ! awk -v name=it -f "$apply" file solution >/dev/null 2>&1 || fail "\"$find\" fits"
done
echo "tutorial_versions: $total versions"
tally tutorial_versions
