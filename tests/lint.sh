#!/bin/sh
# lint.sh: the rules of the tree that a script can check. Prints each breach; exit status 1 if there is one.
#
# lint.sh --graph prints instead which folder includes which, and how often.
#
#   folders    each includes only the folders that the list below allows: dependencies point to lower layers
#   circles    no headers include each other in a circle, nor do the files of the trainer
#   sizes      no source file over 600 lines, no line over 100 columns; no function of the code over 40 lines, and none
#              that was not measured
#   top        at the top lie the files of the list below and the six folders, and what begins with a dot
#   version    CITATION.cff and CHANGELOG.md name CMake's; YAML files can be read
#   files      a user's file is opened by base/file.c, which refuses a FIFO instead of waiting for its writer
#   statuses   a status is tested as `if (f(..., err) != 0) return -1;`, or with == 0 (status_tests.awk)
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

# The files of a folder, without those of folders inside it that have rules of their own.
files_of() {
    case $1 in
    train_ddp) echo "$sources" | grep -E "$programs" && return ;;
    train_fsdp) { echo "$sources" | grep -E "$programs_fsdp" || true; } && return ;;
    esac
    files=$(echo "$sources" | grep "^$1/" | grep -vE "$programs|$programs_fsdp")
    for inner in $layers; do
        case $inner in "$1"/*) files=$(echo "$files" | grep -v "^$inner/") ;; esac
    done
    echo "$files"
}

# The folders whose headers a folder includes, with the number of includes.
included_by() {
    sed -n 's|^#include "\([a-z_/0-9]*\)/[^/]*".*|\1|p' $(files_of "$1") | sort | uniq -c | while read -r times folder; do
        while ! echo " $layers " | grep -q " $folder "; do
            case $folder in */*) folder=${folder%/*} ;; *) break ;; esac
        done
        [ "$folder" = "$1" ] || echo "$times $folder"
    done
}

# may FOLDER FOLDER...: the first folder may only include headers of itself and of the others.
may() {
    own=$1
    shift
    if [ "$graph" = 1 ]; then
        included_by "$own" | sort -k 2 | awk -v own="$own" -v may=" $* " '
            function add() {
                if (other != "")
                    line = line sprintf("  %s (%d)%s", other, times, index(may, " " other " ") ? "" : " UPWARDS")
            }
            $2 != other { add(); other = $2; times = 0 }
            { times += $1 }
            END { add(); printf "%-15s ->%s\n", own, line == "" ? "  nothing" : line }'
        return
    fi
    for other in $(included_by "$own" | cut -d ' ' -f 2 | sort -u); do
        case " $* " in *" $other "*) ;; *) breach "$own must not include $other" ;; esac
    done
}
# train_ddp and the files that only it needs: in the lesson's folder, but a layer above all folders.
programs='^ddp/((train_ddp|strategy_ddp|strategy_ranks|ddp_options)\.|own/)'
programs_fsdp='^ddp/fsdp/((train_fsdp|strategy_fsdp|fsdp_options)\.|own/own_wrapper\.)'
layers='common dp ddp ddp/store ddp/group ddp/rendezvous ddp/features ddp/fsdp ddp/launch bench tutorials tests'
may common
may dp common
may ddp/store common
may ddp/group common ddp/store
may ddp/rendezvous common ddp/store ddp/group
may ddp common ddp/group
may ddp/features common ddp/group ddp
may train_ddp common ddp ddp/group ddp/features ddp/rendezvous
may ddp/fsdp common ddp ddp/group
may train_fsdp common ddp ddp/fsdp ddp/group ddp/features ddp/rendezvous
may ddp/launch common ddp/store ddp/group ddp/rendezvous
may bench common dp ddp ddp/features ddp/fsdp ddp/group ddp/rendezvous
may tutorials common dp ddp ddp/group ddp/rendezvous ddp/features ddp/fsdp
may tests common dp ddp ddp/store ddp/group ddp/rendezvous ddp/features ddp/fsdp ddp/launch bench tutorials

[ "$graph" = 0 ] || exit 0

# circles_of FILE...: prints the circles in these files' includes, one per line. A source file and its header count as
# one.
circles_of() {
    for file in "$@"; do
        module=${file%.*}
        sed -n 's|^#include "\([a-z_/0-9]*\)\.[cuh]*".*|\1|p' "$file" | sed "\|^$module\$|d; s|^|$module |"
    done | tsort 2>&1 >/dev/null | sed -n 's/^tsort: //p' | awk '
        /input contains a loop/ { if (line != "") print line; line = ""; next }
        { line = line " " $0 }
        END { if (line != "") print line }'
}
# shellcheck disable=SC2046 # file names have no spaces
found=$(circles_of $(echo "$sources" | grep -E '\.(h|cuh)$'); circles_of $(echo "$sources" | grep '^common/train/'))
[ -z "$found" ] || breach "circles of includes:$found"

# Only files tracked by git: built and ignored files are allowed. A copy without git is not checked.
top='CMakeLists.txt README.md LICENSE CITATION.cff CHANGELOG.md CONTRIBUTING.md CMakePresets.json common dp ddp bench tutorials tests'
stray=$(git ls-files -z 2>/dev/null | tr '\0\n' '\n?' | cut -d / -f 1 | sort -u | grep -v '^\.' |
    awk -v top="$top" 'BEGIN { n = split(top, names, " "); for (i = 1; i <= n; i++) may[names[i]] }
        !($0 in may)')
[ -z "$stray" ] || breach "these do not belong at the top: $stray"

# CMake's version is the version of libraries, packages and pages.
version=$(sed -n 's/^project(.* VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ "$(sed -n 's/^version: //p' CITATION.cff)" = "$version" ] || breach "CITATION.cff has another version than CMakeLists.txt: $version"
grep -q "^## $version" CHANGELOG.md || breach "CHANGELOG.md has no section for version $version"
yaml=$(ls CITATION.cff .github/workflows/*.yml 2>/dev/null || true) # a class's copy has no workflows
! python3 -c 'import yaml' 2>/dev/null ||
    python3 -c 'import sys, yaml; [yaml.safe_load(open(f)) for f in sys.argv[1:]]' $yaml || breach "a YAML file cannot be read"

while read -r found; do
    [ -z "$found" ] || breach "$found"
done <<END
$(awk '
    FNR == 1 {
        wide = 0
        if (substr($0, 1, 2) != "/*") print FILENAME " does not open with a comment that says what it is"
    }
    FNR == 601 { print FILENAME " has more than 600 lines" }
    length($0) > 100 && !wide { print FILENAME ":" FNR " is wider than 100 columns"; wide = 1 }' $sources)
END

lengths=$(tests/function_lengths.sh $(echo "$sources" | grep -E '^(common|dp|ddp|bench)/')) || breach "functions were not measured"
found=$(echo "$lengths" | awk 'NF && $3 < 0 { print $1 " ends a function that was not measured" }
    $3 > 40 { print $1 " begins a function of " $3 " lines: " $2 }')
[ -z "$found" ] || breach "$found"
functions=$(echo "$lengths" | awk '!NF { next } { all++ } $3 < 0 { unmeasured++ } END { print all - unmeasured " functions, " unmeasured + 0 " unmeasured" }')

found=$(grep -nwE 'assert|TODO|FIXME|XXX' $(echo "$sources" | grep -v '^tests/') || true)
[ -z "$found" ] || breach "words that do not belong here: $found"
found=$(grep -lE 'stdatomic\.h|__atomic_|__sync_|SYS_futex' $sources | grep -v '^common/base/sync\.' || true)
[ -z "$found" ] || breach "atomics outside common/base/sync: $found"

# The excluded files read the kernel's files (/proc, /dev/null).
found=$(grep -nE '\<(gzopen|fopen)\([^"]*"r|\<open\(.*O_RDONLY' $(echo "$sources" | grep -E '^(common|dp|ddp|bench)/' |
    grep -vE '^(common/base/(file|machine)|common/device/cpu/blas_memory|ddp/store/port_holder|ddp/group/shm/shm_wait|ddp/launch/spawn)\.c$') || true)
[ -z "$found" ] || breach "opened past common/base/file.h: $found"

# train_fsdp.c differs from train_ddp.c in a few lines of code only.
if [ -e ddp/fsdp/train_fsdp.c ]; then
    lines=$(diff -w ddp/train_ddp.c ddp/fsdp/train_fsdp.c | grep '^>' | grep -vcE '^> *(\*|/[*/]|$)' || true)
    [ "$lines" -le 15 ] && [ "$lines" -gt 5 ] || breach "train_fsdp.c: $lines lines differ from train_ddp.c's"
fi

# status_tests DECLARED TESTED: prints the tests of a status in another form in the files TESTED. One file name per
# line.
status_tests() (
    IFS='
'
    # shellcheck disable=SC2086 # a name is a line
    awk -f tests/status_tests.awk pass=1 $1 pass=2 $2
)
# Checks the rule itself: it must report exactly the lines marked "breach".
planted=$(mktemp)
trap 'rm -f "$planted"' EXIT
cat >"$planted" <<'END'
int load(const char *path, Error *err);
bool exists(const char *path, Error *err);
Tensor *open_one(const char *path, Error *err);
typedef struct Table {
    int (*wait)(const struct Table *self, Error *err);
} Table;
static int first(const char *path,
                 Error *err) {
    if (load(path, err) != 0) return -1;
    if (load(path, err)) return -1; // breach
    if (load(path, err) == -1) return -1; // breach
    if (load(path, err) < 0) return -1; // breach
    if (!load(path, err)) return 0; // breach
    if (!exists(path, err) || !open_one(path, err)) return -1;
    if (load(path, err) != 0 || first(path, err)) return -1; // breach
    if (table->wait(table, err)) return -1; // breach
    if (table->wait(table, err) == 0) return 0;
    int failed = load(path, err);
    return first(path, err) ? -1 : 0; // breach
}
END
found=$(status_tests "$planted" "$planted" | cut -d : -f 2 | tr '\n' ' ')
wanted=$(sed -n '/breach/=' "$planted" | tr '\n' ' ')
[ "$found" = "$wanted" ] || breach "the rule of statuses found lines $found of its sample, not $wanted"
found=$(status_tests "$sources" "$(echo "$sources" | grep -v '\.cpp$')")
[ -z "$found" ] || breach "a status is tested in another form than != 0: $found"

# LINT_FORMAT=0 skips the slowest check.
if [ "${LINT_FORMAT:-1}" = 0 ]; then
    echo "lint: formatting was not checked"
elif clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    # shellcheck disable=SC2086 # names of our files have no spaces
    found=$(clang-format --dry-run -Werror $sources 2>&1 | sed -n 's/:[0-9:]* error:.*//p' | sort -u)
    [ -z "$found" ] || breach "clang-format would change: $found"
else
    echo "lint: there is no clang-format 14; formatting was not checked"
fi

echo "lint: $(echo "$sources" | wc -l) files, $functions, $breaches breaches"
[ "$breaches" -eq 0 ]
