#!/bin/sh
# lint.sh: the rules of the tree that a script can check. Prints each breach; exit status 1 if there is one.
#
#   layers     common includes neither dp nor ddp, dp and ddp never each other, nothing includes bench,
#              tutorials or tests (tests may include tests)
#   sizes      no source file over 600 lines, no line over 100 columns
#   words      no assert, no TODO or FIXME in C sources; atomics only in base/sync
#   format     clang-format 14 leaves every file as it is (other versions format otherwise: not asked)
set -eu
cd "$(dirname "$0")/.."
breaches=0

breach() {
    echo "lint: $*"
    breaches=$((breaches + 1))
}

folders=$(ls -d common dp ddp bench tutorials tests 2>/dev/null || true)
sources=$(find $folders -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' | sort)

includes() { # FOLDER FORBIDDEN: who in FOLDER includes something of FORBIDDEN
    grep -nE "#include \"($2)/" $(echo "$sources" | tr ' ' '\n' | grep "^$1/") /dev/null || true
}
for rule in 'common:dp|ddp|bench|tutorials|tests' 'dp:ddp|bench|tutorials|tests' \
    'ddp:dp|bench|tutorials|tests' 'bench:tutorials|tests' 'tests:bench|tutorials'; do
    found=$(includes "${rule%%:*}" "${rule#*:}")
    [ -z "$found" ] || breach "${rule%%:*} must not include this: $found"
done

for file in $sources; do
    lines=$(wc -l <"$file")
    [ "$lines" -le 600 ] || breach "$file has $lines lines"
    wide=$(awk 'length($0) > 100 { print FNR; exit }' "$file")
    [ -z "$wide" ] || breach "$file:$wide is wider than 100 columns"
    first=$(head -c 2 "$file")
    [ "$first" = '/*' ] || breach "$file does not open with a comment that says what it is"
done

found=$(grep -nwE 'assert|TODO|FIXME|XXX' $(echo "$sources" | grep -v '^tests/') || true)
[ -z "$found" ] || breach "words that do not belong here: $found"
found=$(grep -lE 'stdatomic\.h|__atomic_|__sync_|SYS_futex' $sources | grep -v '^common/base/sync\.' || true)
[ -z "$found" ] || breach "atomics outside common/base/sync: $found"

if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    for file in $sources; do
        clang-format --dry-run -Werror "$file" 2>/dev/null || breach "clang-format would change $file"
    done
else
    echo "lint: there is no clang-format 14; formatting was not checked"
fi

echo "lint: $(echo "$sources" | wc -l) files, $breaches breaches"
[ "$breaches" -eq 0 ]
