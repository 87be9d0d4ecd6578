#!/bin/sh
# mutants.sh: tests the tests. A mutant is the tree with one planted mistake; a test must fail.
#
#   tests/mutants.sh                the eight classic mistakes of tests/mutants/equivalence.txt, all of
#                                   which bench/compare.sh must find, by exit status 1
#   tests/mutants.sh --all          the whole catalogue, and a table of what caught which
#   tests/mutants.sh --room NAME    one folder of it: tests/mutants/NAME.txt
#   tests/mutants.sh --only NAME    one mutant
#   tests/mutants.sh --check        builds nothing: every text is found in the tree exactly once, every
#                                   test exists, and every row of tests/semantics.md has a mutant
#   tests/mutants.sh --generated    random mutants, made by operators applied to the code
#                                   (--generated --help; tests/mutants/README.md)
#
# For each mutant its named tests run first; then, if they passed and the catalogue has no reason
# why, the other quick tests (not with --named). A test that takes --limit seconds (45) more than
# three times its time without a mutant has failed, too.
# The exit status is 1 if less than 95 % are caught, or one survives without a reason; 2 if the
# catalogue does not fit the tree, or a test fails without a mutant. Works on a copy of the tree with one
# build, and one more for each of the presets `emulator` and `races`; each mutant changes a file and is
# undone afterwards. It takes an hour: run it with nice.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
catalogue=$root/tests/mutants
what=equivalence room= only= limit=45 rest=1

usage() {
    sed -n '2,21s/^# \{0,1\}//p' "$0"
    exit "$1"
}

if [ "${1:-}" = --generated ]; then
    shift
    PYTHONDONTWRITEBYTECODE=1 exec python3 "$catalogue/generated.py" "$@"
fi
while [ $# -gt 0 ]; do
    case $1 in
    --all) what=all ;;
    --check) what=check ;;
    --named) rest=0 ;;
    --room | --only | --limit)
        [ $# -ge 2 ] || usage 2 >&2
        case $1 in
        --room) room=$2 what=all ;;
        --only) only=$2 what=all ;;
        *) limit=$2 ;;
        esac
        shift
        ;;
    --help | -h) usage 0 ;;
    *)
        echo "error: unknown option $1" >&2
        usage 2 >&2
        ;;
    esac
    shift
done

# read_catalogue MODE [NAME [TREE]]
read_catalogue() {
    awk -v mode="$1" -v wanted="${2:-}" -v root="${3:-$root}" -f "$catalogue/catalogue.awk" \
        "$catalogue"/*.txt
}

# ---- the catalogue alone ----------------------------------------------------------------------

# The rows of semantics.md's tables, except those that give a reason for having no test.
rows_to_cover() {
    awk -F ' *[|] *' '$2 ~ /^([0-9]+|[a-z]|[A-Z])$/ && !/\| No test/ { print $2 }' "$root/tests/semantics.md"
}

check_catalogue() {
    problems=0
    read_catalogue check || problems=1
    for name in $(read_catalogue list | cut -f 3 | tr ' ' '\n' | sort -u); do
        [ "$name" = compare.sh ] ||
            grep -rqwF --include=CMakeLists.txt -e "$name" -e "${name%_*}" "$root/tests" ||
            { echo "there is no test $name" && problems=1; }
    done
    named=" $(read_catalogue list | cut -f 4 | tr '\n' ' ') "
    for row in $(rows_to_cover); do
        case $named in
        *" $row "*) ;;
        *) echo "row $row of semantics.md has no mutant" && problems=1 ;;
        esac
    done
    ! command -v python3 >/dev/null ||
        PYTHONDONTWRITEBYTECODE=1 python3 "$catalogue/generated.py" --check || problems=1
    [ "$problems" = 0 ] || exit 1
    echo "$(read_catalogue list | wc -l) mutants, each of which fits the tree"
    exit 0
}
[ "$what" != check ] || check_catalogue

# ---- building and testing a copy --------------------------------------------------------------

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
mkdir "$work/tree"
tar -C "$root" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$work/tree" -xf -
cd "$work/tree"
catalogue=$work/tree/tests/mutants # a copy, so that edits do not affect a run

# use_preset PRESET: for the following mutants. Configures its build, in the folder $build, at the first use.
use_preset() {
    preset=$1 build=build-$1 options=
    [ "$1" != release ] || build=build options=-DWITH_CUDA=OFF
    case $1 in
    emulator) options="-DWITH_CUDA=EMULATED -DWITH_MPI=OFF" ;;
    races) options="-DWITH_CUDA=EMULATED -DEMULATED_RACES=ON -DWITH_MPI=OFF" ;;
    esac
    if [ ! -d "$build" ]; then
        # -O1 builds faster, and mistakes show nevertheless.
        # shellcheck disable=SC2086 # the options are words
        cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 \
            -DCMAKE_CXX_FLAGS_RELEASE=-O1 $options $with_tests >"$work/build.log" 2>&1 ||
            { cat "$work/build.log" && exit 2; }
        # make prints "... train_dp", ninja "train_dp: phony"
        cmake --build "$build" --target help | sed -n 's/^\.\.\. //p; s/: phony$//p' >"$work/targets.$preset"
    fi
    # All linked targets except unit tests and tutorials: they take a fifth of the build's time.
    programs=$(grep -x '[a-z][a-z_]*' "$work/targets.$preset" |
        grep -vE '^(test_.*|tutorial.*|all|clean|depend|edit_cache|rebuild_cache|test|install.*|package.*|list_.*)$')
}

# build [TARGET...]: without output; the log is in $work/build.log.
build() {
    cmake --build "$build" -j "$(nproc)" ${1:+--target} "$@" >"$work/build.log" 2>&1
}

planted="the tree without a mutant"
must_build() {
    build "$@" && return
    grep -E 'error|undefined' "$work/build.log" | head -n 20
    echo "$planted does not build"
    exit 2
}

# Runs bench/compare.sh's equivalence; its exit status tells whether it found a difference.
compare() {
    must_build train_single train_dp train_ddp train_fsdp ddprun compare_tensors
    status=0
    timeout -k 5 300 bench/compare.sh --quick --only-equivalence --bin build/bin --out "$work/out" \
        >"$work/test.log" 2>&1 || status=$?
    return "$status"
}

# The program of a test_*, whose name may be longer: test_parity_cuda is test_parity with an argument.
target_of() {
    grep -qx "$1" "$work/targets.$preset" && echo "$1" || echo "${1%_*}"
}

# run_test NAME: builds its targets and runs it. $how describes the failure.
run_test() {
    how=$1
    if [ "$1" = compare.sh ]; then
        compare
        return
    fi
    case $1 in
    test_*) must_build "$(target_of "$1")" ;;
    grade_* | tutorial_*) must_build ;;
    weak_memory) ;; # reads only sources
    mpi_collectives) must_build $programs test_process_group test_subgroups ;; # started by the script itself
    mpi_messages) must_build $programs test_mpi_messages ;;
    *) must_build $programs ;; # a script: may run any program
    esac
    status=0
    seconds=$(cat "$work/seconds.$preset.$1")
    timeout -k 5 "$seconds" ctest --test-dir "$build" --timeout "$seconds" --output-on-failure --no-tests=error \
        -R "^$1\$" >"$work/test.log" 2>&1 || status=$?
    if [ "$status" = 124 ] || grep -q '\*\*\*Timeout' "$work/test.log"; then
        how="$1 (hangs)"
    elif [ "$status" != 0 ]; then
        function=$(sed -n 's/^\[  FAILED  \] \([a-z][A-Za-z0-9_]*\)$/\1/p' "$work/test.log" | head -n 1)
        how=$1${function:+: $function}
    fi
    return "$status"
}

# Runs the remaining quick tests.
run_rest() {
    must_build
    labels="-LE slow|gpu|lint"
    case $preset in
    emulator | races) labels="-L gpu|emulator -LE slow" ;;
    esac
    status=0
    # shellcheck disable=SC2086 # the labels are words
    timeout -k 5 1200 ctest --test-dir "$build" --timeout 300 -j "$(nproc)" --stop-on-failure \
        $labels -E "^($(echo "$1" | cat - "$work/broken.$preset" | tr ' ' '\n' | paste -sd '|' -))\$" >"$work/test.log" 2>&1 || status=$?
    [ "$status" != 124 ] || status=0 # the limit of twenty minutes without a failure
    how=$(sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: \([^ ]*\) .*\*\*\*.*/\1/p' "$work/test.log" | head -n 1)
    return "$status"
}

plant() {
    planted=$1
    for file in $(read_catalogue files "$1"); do
        mkdir -p "$work/before/$(dirname "$file")"
        cp "$file" "$work/before/$file"
    done
    read_catalogue plant "$1" "$work/tree" || exit 2
}

# With new times of modification, so that make rebuilds the restored files.
restore() {
    for file in $(read_catalogue files "$1"); do cp "$work/before/$file" "$file"; done
}

# ---- the eight mistakes that bench/compare.sh must find ---------------------------------------

run_equivalence() {
    with_tests=-DWITH_TESTS=OFF
    use_preset release
    compare || { tail -n 20 "$work/test.log" && echo "the tree without a mutant fails already" && exit 1; }
    echo "passed  the tree as it is"
    survivors=0 caught=0
    for name in $(read_catalogue list | awk -F '\t' '$1 == "equivalence" { print $2 }'); do
        plant "$name"
        compare && status=0 || status=$?
        restore "$name"
        if [ "$status" = 1 ]; then
            caught=$((caught + 1))
            echo "caught  $name"
        else
            survivors=$((survivors + 1))
            echo "SURVIVED (status $status)  $name"
        fi
    done
    echo "mutants: $caught caught, $survivors survived"
    [ "$survivors" = 0 ] && [ "$caught" -gt 0 ]
    exit
}
[ "$what" = all ] || run_equivalence

# ---- the whole catalogue ----------------------------------------------------------------------

with_tests=
read_catalogue list | awk -F '\t' -v room="$room" -v only="$only" \
    '(room == "" || $1 == room) && (only == "" || $2 == only)' >"$work/list"
[ -s "$work/list" ] || { echo "error: the catalogue has no such room or mutant" >&2 && exit 2; }

# try_without: runs the tests of the preset's mutants on the unchanged tree
try_without() {
    : >"$work/broken.$preset"
    for test in $(awk -F '\t' -v preset="$preset" '$5 == preset { print $3 }' "$work/list" | tr ' ' '\n' | sort -u); do
        echo 900 >"$work/seconds.$preset.$test"
        begun=$(date +%s)
        if run_test "$test"; then
            took=$(($(date +%s) - begun))
            echo $((3 * took + limit)) >"$work/seconds.$preset.$test"
            continue
        fi
        tail -n 30 "$work/test.log"
        echo "$how: the tree without a mutant fails already, so this test judges none"
        echo "$test" >>"$work/broken.$preset"
    done
}

for preset in $(cut -f 5 "$work/list" | sort -u); do
    use_preset "$preset"
    try_without </dev/null
done

tab=$(printf '\t')
while IFS=$tab read -r mutant_room name tests _ preset survives; do
    use_preset "$preset"
    plant "$name"
    result=survived
    for test in $tests; do
        ! grep -qxF "$test" "$work/broken.$preset" || continue
        run_test "$test" </dev/null && continue
        result=caught
        break
    done
    if [ "$result$survives" = survived ] && [ "$rest" = 1 ]; then run_rest "$tests" </dev/null || result=caught; fi
    restore "$name"
    [ "$result" = caught ] || how=${survives:-SURVIVED}
    [ "$result:${survives:+x}" != survived:x ] || result=explained
    printf '%-12s %-44s %s\n' "$mutant_room" "$name" "$how"
    echo "$mutant_room $result" >>"$work/results"
done <"$work/list"

awk '
{
    all[$1]++
    if ($2 == "caught") caught[$1]++
    if ($2 == "explained") explained[$1]++
    if ($2 == "survived") unexplained++
}
END {
    print ""
    for (room in all) {
        printf "%-12s %3d of %3d caught, %d explained\n", room, caught[room], all[room], explained[room] | "sort"
        sum += all[room]
        sum_caught += caught[room]
    }
    close("sort")
    printf "mutants: %d of %d caught (%.1f %%), %d survive without an explanation\n", sum_caught, sum, \
        100 * sum_caught / sum, unexplained
    exit sum_caught < 0.95 * sum || unexplained > 0
}' "$work/results"
[ -z "$(cat "$work"/broken.*)" ] || exit 2
