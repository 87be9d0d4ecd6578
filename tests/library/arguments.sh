#!/bin/sh
# arguments.sh BIN_DIR BUILD_DIR CC: NULL for each pointer parameter of each public function, and numbers out of range,
# are answered by an Error or by a CHECK that names the argument; each _close accepts NULL (arguments.c).
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
build=$2 cc=$3

# nulls.h: one call for each line `if (!ARGUMENT) null_argument(...)` of the guards, with a dummy for the other
# pointers. Functions that close accept NULL and have no such line.
awk '
/^[A-Za-z].*_inside\(.*\);$/ {
    line = $0
    sub(/_inside\(/, "(", line)
    head = line; sub(/\(.*/, "", head); n = split(head, words, /[ *]/); name = words[n]
    list = substr(line, length(head) + 2); sub(/\);$/, "", list)
    gsub(/\(\*[a-z_]+\)\([^()]*\)/, "*function", list)
    count = split(list, parameter, /, */)
}
/null_argument\("/ {
    split($0, quoted, "\""); argument = quoted[4]
    call = name "("
    for (i = 1; i <= count; i++) {
        type = parameter[i]
        own = type; sub(/\[.*/, "", own); sub(/.*[ *]/, "", own)
        names[i] = own
        if (type ~ /[*[]/) value = "(void *)dummy"; else { sub(/ [a-z_0-9]+$/, "", type); value = "(" type "){0}" }
        if (own == argument || (own == "function" && type ~ /\*function$/ && !index(list, argument))) value = "NULL"
        call = call (i > 1 ? ", " : "") value
    }
    printf "static void null_%d(void) { (void)%s); }\n", ++calls, call
    what[calls] = name "." argument; word[calls] = "the argument " argument " is NULL"
}
END {
    print "static void try_nulls(void) {"
    for (i = 1; i <= calls; i++) printf "    expect(\"%s\", \"%s\", null_%d);\n", what[i], word[i], i
    print "}"
}' "$build/lib/guards.c" >nulls.h
calls=$(grep -c '^static void null_' nulls.h)
checks=$((checks + 1))
[ "$calls" -gt 300 ] || fail "only $calls pointers found"
# closes.h: each _close with NULL.
find "$build/include/ddpc" -name '*.h' -exec cat {} + |
    sed -nE 's/^void ([a-z_]+_close)\([A-Za-z]+ \*[a-z]+\);.*/\1(NULL);/p' | sort -u >closes.h
checks=$((checks + 1))
[ "$(wc -l <closes.h)" -ge 10 ] || fail "only these _close: $(cat closes.h)"
# Each line of may_be_null.txt names an argument that exists, so a renamed argument is noticed.
checks=$((checks + 1))
grep '^[^#]' "$root/common/cmake/may_be_null.txt" | while IFS= read -r pattern; do
    grep -qE "^// $pattern may be NULL$" "$build/lib/guards.c" || echo "$pattern"
done >unused.txt
[ ! -s unused.txt ] || fail "may_be_null.txt: no public function has $(cat unused.txt)"
# Every public function that has a pointer is guarded, or all its pointers may be NULL.
run 'compilation' "$cc" -std=c11 -D_GNU_SOURCE -I. -I"$root" -I"$build/include" "$root/tests/library/arguments.c" -o arguments \
    -L"$build/lib" -lddpc "-Wl,-rpath,$build/lib" -lm
checks=$((checks + 1))
./arguments >out.txt 2>&1 || fail "$(cat out.txt)"
tail -n 1 out.txt
tally arguments
