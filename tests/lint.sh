#!/bin/sh
# lint.sh: the rules of the tree that a script can check. Prints each breach; exit status 1 if there is one.
#
# lint.sh --graph prints instead which room includes which, and how often.
#
#   rooms      each folder includes only what the list below allows: arrows run downwards
#   sizes      no source file over 600 lines, no line over 100 columns; no function of the code over 40 lines
#   top        at the top lie the files of the list below and the six folders, and what begins with a dot
#   words      no assert, no TODO or FIXME in C sources; atomics only in base/sync
#   format     clang-format 14 leaves every file as it is (other versions format otherwise: not asked)
set -eu
cd "$(dirname "$0")/.."
breaches=0 graph=0
[ "${1:-}" != --graph ] || graph=1

breach() {
    echo "lint: $*"
    breaches=$((breaches + 1))
}

folders=$(ls -d common dp ddp bench tutorials tests 2>/dev/null || true)
sources=$(find $folders -path tutorials/work -prune -o '(' -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
    -o -name '*.cpp' ')' -print | sort) # tutorials/work is the reader's own

# The files of a room: those of the rooms inside it have rules of their own.
files_of() {
    if [ "$1" = train_ddp ]; then
        echo "$sources" | grep -E "$programs"
        return
    fi
    files=$(echo "$sources" | grep "^$1/" | grep -vE "$programs")
    for inner in $rooms; do
        case $inner in "$1"/*) files=$(echo "$files" | grep -v "^$inner/") ;; esac
    done
    echo "$files"
}

# The rooms whose headers a room includes: how often, and which.
included_by() {
    sed -n 's|^#include "\([a-z_/0-9]*\)/[^/]*".*|\1|p' $(files_of "$1") | sort | uniq -c | while read -r times folder; do
        while ! echo " $rooms " | grep -q " $folder "; do
            case $folder in */*) folder=${folder%/*} ;; *) break ;; esac
        done
        [ "$folder" = "$1" ] || echo "$times $folder"
    done
}

# may ROOM ROOM...: the first includes nothing of this tree but itself and the others.
may() {
    room=$1
    shift
    if [ "$graph" = 1 ]; then
        included_by "$room" | sort -k 2 | awk -v room="$room" -v may=" $* " '
            function add() {
                if (other != "")
                    line = line sprintf("  %s (%d)%s", other, times, index(may, " " other " ") ? "" : " UPWARDS")
            }
            $2 != other { add(); other = $2; times = 0 }
            { times += $1 }
            END { add(); printf "%-15s ->%s\n", room, line == "" ? "  nothing" : line }'
        return
    fi
    for other in $(included_by "$room" | cut -d ' ' -f 2 | sort -u); do
        case " $* " in *" $other "*) ;; *) breach "$room must not include $other" ;; esac
    done
}
# train_ddp and what only it needs: they lie with the lesson and stand above all rooms.
programs='^ddp/(train_ddp|strategy_ddp|options)\.'
rooms='common dp ddp ddp/store ddp/group ddp/rendezvous ddp/features ddp/launch bench tutorials tests'
may common
may dp common
may ddp/store common
may ddp/group common ddp/store
may ddp/rendezvous common ddp/store ddp/group
may ddp common ddp/group
may ddp/features common ddp/group ddp
may train_ddp common ddp ddp/group ddp/features ddp/rendezvous
may ddp/launch common ddp/store ddp/group ddp/rendezvous
may bench common dp ddp ddp/features ddp/group ddp/rendezvous
may tutorials common dp ddp ddp/group ddp/rendezvous ddp/features
may tests common dp ddp ddp/store ddp/group ddp/rendezvous ddp/features ddp/launch

[ "$graph" = 0 ] || exit 0

# Of the files that git knows: what is built or written there is nobody's business. In a copy without git
# there is nothing to ask.
top='CMakeLists.txt README.md LICENSE CONTRIBUTING.md CMakePresets.json common dp ddp bench tutorials tests'
stray=$(git ls-files -z 2>/dev/null | tr '\0\n' '\n?' | cut -d / -f 1 | sort -u | grep -v '^\.' |
    awk -v top="$top" 'BEGIN { n = split(top, names, " "); for (i = 1; i <= n; i++) may[names[i]] }
        !($0 in may)')
[ -z "$stray" ] || breach "these do not belong at the top: $stray"

# A function goes from the line at the margin that ends in ") {" to the next brace at the margin, as in house.sh.
while read -r found; do
    [ -z "$found" ] || breach "$found"
done <<END
$(awk '
    FNR == 1 {
        begin = wide = 0
        if (substr($0, 1, 2) != "/*") print FILENAME " does not open with a comment that says what it is"
    }
    FNR == 601 { print FILENAME " has more than 600 lines" }
    length($0) > 100 && !wide { print FILENAME ":" FNR " is wider than 100 columns"; wide = 1 }
    /^[A-Za-z_].*\) *\{ *$/ && FILENAME ~ /^(common|dp|ddp|bench)\// { begin = FNR }
    begin && /^\}/ {
        if (FNR - begin > 41) print FILENAME ":" begin " begins a function of " FNR - begin - 1 " lines"
        begin = 0
    }' $sources)
END

found=$(grep -nwE 'assert|TODO|FIXME|XXX' $(echo "$sources" | grep -v '^tests/') || true)
[ -z "$found" ] || breach "words that do not belong here: $found"
found=$(grep -lE 'stdatomic\.h|__atomic_|__sync_|SYS_futex' $sources | grep -v '^common/base/sync\.' || true)
[ -z "$found" ] || breach "atomics outside common/base/sync: $found"

# LINT_FORMAT=0 leaves the slowest check out.
if [ "${LINT_FORMAT:-1}" = 0 ]; then
    echo "lint: formatting was not checked"
elif clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    # shellcheck disable=SC2086 # names of our files have no spaces
    found=$(clang-format --dry-run -Werror $sources 2>&1 | sed -n 's/:[0-9:]* error:.*//p' | sort -u)
    [ -z "$found" ] || breach "clang-format would change: $found"
else
    echo "lint: there is no clang-format 14; formatting was not checked"
fi

echo "lint: $(echo "$sources" | wc -l) files, $breaches breaches"
[ "$breaches" -eq 0 ]
