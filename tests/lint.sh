#!/bin/sh
# lint.sh: the rules of the tree that a script can check. Prints each breach; exit status 1 if there is one.
#
#   rooms      each folder includes only what the list below allows: arrows run downwards
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
sources=$(find $folders -path tutorials/work -prune -o '(' -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
    -o -name '*.cpp' ')' -print | sort) # tutorials/work is the reader's own

# may ROOM ROOM...: the files of the first folder, and of no folder of its own rule below it, include
# nothing of this tree but these folders and their own.
may() {
    room=$1
    shift
    allowed="$room|$(echo "$*" | tr ' ' '|')"
    files=$(echo "$sources" | grep "^$room/")
    for inner in $rooms; do # the rooms inside this one have rules of their own
        case $inner in "$room"/*) files=$(echo "$files" | grep -v "^$inner/") ;; esac
    done
    found=$(grep -nE '#include "[a-z]+/' $files /dev/null |
        grep -vE "#include \"($allowed)/" || true)
    [ -z "$found" ] || breach "$room must not include this: $found"
    # "ddp" allows the lesson's headers, not the rooms within its folder.
    found=$(grep -nE '#include "ddp/[a-z_]+/' $files /dev/null |
        grep -vE "#include \"($(echo "$allowed" | sed 's/|ddp|/|/; s/|ddp$//; s/^ddp|//'))/" || true)
    [ -z "$found" ] || breach "$room must not include this: $found"
}
rooms='common dp ddp ddp/store ddp/group ddp/rendezvous ddp/features ddp/launch bench tutorials tests'
may common
may dp common
may ddp/store common
may ddp/group common ddp/store
may ddp/rendezvous common ddp/store ddp/group
may ddp common ddp/store ddp/group ddp/rendezvous ddp/features # the list of features goes
may ddp/features common ddp/group ddp
may ddp/launch common ddp/store ddp/group ddp/rendezvous
may bench common dp ddp ddp/group ddp/rendezvous
may tutorials common dp ddp ddp/group ddp/rendezvous ddp/features
may tests common dp ddp ddp/store ddp/group ddp/rendezvous ddp/features ddp/launch

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
    clang-format --dry-run -Werror $sources 2>/dev/null || # all at once is fast; one by one names the file
        for file in $sources; do
            clang-format --dry-run -Werror "$file" 2>/dev/null || breach "clang-format would change $file"
        done
else
    echo "lint: there is no clang-format 14; formatting was not checked"
fi

echo "lint: $(echo "$sources" | wc -l) files, $breaches breaches"
[ "$breaches" -eq 0 ]
