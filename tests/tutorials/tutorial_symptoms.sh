#!/bin/sh
# tutorial_symptoms.sh BIN_DIR: every symptom of tutorials/symptoms.md occurs with --break=NAME, and not without; the
# page and the program have the same names.
page=$(cd "$(dirname "$0")/../../tutorials" && pwd)/symptoms.md
. "$(dirname "$0")/../programs/checks.sh"
names=$("$bin/tutorial_symptoms" --help | sed -n 's/^ *--break none|//p' | tr '|' '\n')
run 'all symptoms, cured' "$bin/tutorial_symptoms"
cp out.txt cured.txt
for name in $names; do
    checks=$((checks + 1))
    grep -q "^$name: .*(right)\$" cured.txt || fail "$name is not right without the mistake: $(cat cured.txt)"
    run "$name, broken" timeout 60 "$bin/tutorial_symptoms" --break="$name"
    grep -q "^$name: .*(wrong)\$" out.txt || fail "$name does not happen: $(cat out.txt)"
    grep -q -- "--break=$name\`" "$page" || fail "symptoms.md does not tell of $name"
done
[ "$(echo "$names" | wc -l)" -ge 37 ] || fail "fewer than 37 symptoms: $names"
for name in $(sed -n 's/.*`--break=\([a-z0-9-]*\)`.*/\1/p' "$page"); do
    echo "$names" | grep -qx -- "$name" || fail "symptoms.md tells of $name, which the program does not know"
done
tally tutorial_symptoms
