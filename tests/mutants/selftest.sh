#!/bin/sh
# selftest.sh: the generated mutants of a project in which each is known (selftest/): counts per operator, an
# equivalent that is honoured, mutants that hang, a rank that is killed after it reached one, code that no test
# executes, an enumerator that is built on its own; the same draw by the same seed; the table by room.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
problems=0

expect() {
    grep -qF -e "$1" "$work/log" && return
    echo "not printed: $1"
    problems=$((problems + 1))
}

generated() {
    status=0
    PYTHONDONTWRITEBYTECODE=1 python3 "$here/generated.py" --root "$work/tiny" --room tiny "$@" >"$work/log" 2>&1 ||
        status=$?
    [ "$status" != 77 ] || { cat "$work/log" && exit 77; }
}

command -v python3 >/dev/null || { echo "skipped: there is no python3" && exit 77; }
cp -R "$here/selftest" "$work/tiny"
cmake -S "$work/tiny" -B "$work/tiny/build" -DCMAKE_BUILD_TYPE=Release >"$work/log" 2>&1 &&
    cmake --build "$work/tiny/build" >>"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
cp "$work/tiny/tiny/tiny.c" "$work/before.c"

cp "$here/samples.csv" "$work/tiny/tests/mutants"
generated --count all --slack 1 --seed 1 --at-least 80 --keep
[ "$status" = 0 ] || { cat "$work/log" && exit 1; }
expect '32 mutants, of which 5 need a build of their own; 32 drawn with --seed 1'
expect 'operators: and_or 1, arithmetic 3, boundary 5, constant 13, delete 3, drop_check 2, drop_not 1, drop_reset 1, negate 2, swap 1'
expect '26 of 31 caught (83.9 %); equivalent 3.1 % of the sample'
expect 'equivalent tiny/tiny.c:11 clamp boundary: x < LIMIT -> x <= LIMIT  x == LIMIT gives LIMIT in both branches'
expect 'caught     tiny/tiny.c:16 count_to delete: i += step; -> (nothing)  tiny (hangs)'
expect 'caught     tiny/tiny.c:33 last_words delete: *said = 5; -> (nothing)  tiny'
expect 'caught     tiny/tiny.c:8 - constant: 3 -> 4  tiny'
expect 'survived   tiny/tiny.c:38 never_called arithmetic: x + 1 -> x - 1  (no test executes it)'
cmp "$work/before.c" "$work/tiny/tiny/tiny.c" || problems=$((problems + 1))
tail -n 1 "$work/tiny/tests/mutants/samples.csv" >"$work/log"
grep -qx "tiny,$(date +%Y-%m-%d),1,1,26,1,0,5" "$work/log" || { echo "kept: $(cat "$work/log")" && problems=$((problems + 1)); }

generated --count 3 --slack 1 --seed 5 --at-least 101
[ "$status" = 1 ] || { echo "--at-least 101: status $status" && problems=$((problems + 1)); }
grep -E '^(caught|survived|equivalent) ' "$work/log" | sort >"$work/first"
generated --count 3 --slack 1 --seed 5
grep -E '^(caught|survived|equivalent) ' "$work/log" | sort | cmp - "$work/first" || problems=$((problems + 1))
[ "$(wc -l <"$work/first")" = 3 ] || problems=$((problems + 1))

# Without time nothing is judged; what had no time at first is judged at the end.
generated --count 8 --slack 1 --seed 1 --budget 0
expect '(tests that had no time: 1)'
! grep -q '^caught' "$work/log" || { cat "$work/log" && problems=$((problems + 1)); }
generated --count all --slack 1 --seed 1 --budget 0 --again 60
expect '26 of 31 caught (83.9 %)'

# By room: tiny has an aim, its samples are drawn as above, and less than the aim is status 1.
mkdir "$work/tool"
cp "$here"/*.py "$work/tool"
sed -i "s/^ROOMS = {/ROOMS = {'tiny': 80, /" "$work/tool/generated.py"
for pair in 10:3 90:all; do
    aim=${pair%:*}
    sed -i "s/'tiny': [0-9]*/'tiny': $aim/" "$work/tool/generated.py"
    status=0
    PYTHONDONTWRITEBYTECODE=1 python3 "$work/tool/generated.py" --root "$work/tiny" --each --count "${pair#*:}" --slack 1 --seed 1 >"$work/log" 2>&1 || status=$?
    [ "$status" = $((aim == 90)) ] || { echo "--each, aim $aim: status $status" && problems=$((problems + 1)); }
    expect " % (aim $aim)"
done
expect "tiny         26          1          0          5   83.9 % (aim 90)"

[ "$problems" = 0 ] && echo "all mutants of selftest/ are judged as they should be" || cat "$work/log"
[ "$problems" = 0 ]
