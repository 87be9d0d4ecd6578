# checks.sh: shared functions of the programs' shell tests; sourced first, with BIN_DIR as $1. Changes to a temporary
# folder, which is removed at the end.
set -eu
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
checks=0 failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# run WHAT COMMAND...: the command must succeed; its stdout is in out.txt, its stderr in err.txt.
run() {
    checks=$((checks + 1))
    what=$1
    shift
    "$@" >out.txt 2>err.txt </dev/null || fail "$what: $(cat err.txt)"
}

# refuse STATUS 'WORDS' COMMAND...: the command must end with this status and exactly one line that begins with "error:
# ", which contains the words.
refuse() {
    checks=$((checks + 1))
    wanted=$1 words=$2
    shift 2
    status=0
    "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "status $status, not $wanted: $*: $(cat err.txt)"
    [ "$(grep -c '^error: ' err.txt)" = 1 ] || fail "not one error line: $*: $(cat err.txt)"
    grep '^error: ' err.txt | grep -qF -- "$words" || fail "no \"$words\" from $*: $(cat err.txt)"
}

# Skips the test if bench/compare.sh cannot write a report with figures here.
needs_report() {
    command -v gnuplot >/dev/null || { echo "skipped: there is no gnuplot" && exit 77; }
    for python in python3 /usr/bin/python3; do
        ! "$python" -c 'import jinja2' 2>/dev/null || return 0
    done
    echo "skipped: there is no Python with Jinja2"
    exit 77
}

# Prints the name of a checkpoint's optimizer file.
state() { echo "$(dirname "$1")/$(grep -ao '[^"/]*\.optimizer' "$1" | head -n 1)"; }

# same A B: all tensors of both pairs of files have equal bits.
same() {
    checks=$((checks + 1))
    "$bin/compare_tensors" --bitwise "$1" "$2" >cmp.txt 2>&1 || fail "$1 and $2: $(tail -n 1 cmp.txt)"
    "$bin/compare_tensors" --bitwise "$(state "$1")" "$(state "$2")" >cmp.txt 2>&1 ||
        fail "the optimizer states of $1 and $2: $(tail -n 1 cmp.txt)"
}

# tally NAME: prints the last line of a test and exits with its status.
tally() {
    echo "$1: $checks checks, $failures failures"
    [ "$failures" = 0 ]
}
