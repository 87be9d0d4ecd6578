#!/usr/bin/env bash
# first_contact_quick.sh BIN BUILD: tests/first_contact.sh on the emulator: it asks everything, in its order, and
# leaves a log of each question; a tool that fails or hangs keeps no other question from being asked.
set -euo pipefail
. "$(dirname "$0")/checks.sh"
build=$2
first_contact=$(cd "$(dirname "$0")/../.." && pwd)/tests/first_contact.sh

# A compute-sanitizer whose tools do what the questions must survive; no PyTorch.
export PYTHON=/bin/false
mkdir tools
cat >tools/compute-sanitizer <<'END'
#!/bin/sh
# --tool TOOL --error-exitcode 9 PROGRAM
[ -x "$5" ] || { echo "FAILED: there is no $5"; exit 8; }
case $2 in
racecheck) echo "a race"; exit 9 ;;
initcheck)
    [ -z "${FIRST_CONTACT_SECONDS:-}" ] || sleep 600
    echo "=========     at 0x50 in void cutlass::Kernel2<cutlass_80_simt_sgemm>(T1::Params)"
    [ -z "${OWN_FINDING:-}" ] || echo "=========     at sum_columns(float*, float const*)+0x50 in norm.cu:12"
    exit 9
    ;;
esac
END
chmod +x tools/compute-sanitizer
export PATH=$PWD/tools:$PATH

# contact FOLDER [options]: a question fails
contact() {
    folder=$1 status=0 line=0
    shift
    "$first_contact" --quick --build "$build" --out "$folder" "$@" >out.txt 2>err.txt || status=$?
    cat out.txt
    [ $status = 1 ] || fail "status $status, though a question failed"
}

# expect ANSWER NAME: in the order of the calls
expect() {
    checks=$((checks + 1))
    at=$(grep -n "^$2 .*$1 " "$folder/summary.txt" | head -n 1 | cut -d : -f 1)
    [ -n "$at" ] || { fail "$2 is not $1" && return; }
    [ "$at" -gt "$line" ] || fail "$2 comes too early"
    line=$at
}
contact folder
expect ok plans
expect ok 'kernels test_cuda_layout'
expect ok 'sanitizer memcheck'
expect FAILED 'sanitizer racecheck'
expect ok 'sanitizer initcheck'
expect ok 'sanitizer synccheck'
expect ok graph
expect ok 'hosts NCCL 4096'
expect ok kill
expect ok 'figure graph-gap'
expect ok 'figure product'
expect ok 'figure channels-last'
expect ok 'figure all-reduce blocking=0'
expect ok 'figure all-reduce blocking=1'
expect skipped peers
[ "$(find folder -name '[0-9][0-9]-*.log' | wc -l)" = 15 ] || fail "$(ls folder)"
grep -q '15 questions, 1 failures' folder/summary.txt || fail "the last line of the index"

FIRST_CONTACT_SECONDS=3 contact hanging --only sanitizer
expect FAILED 'sanitizer racecheck'
expect HANGS 'sanitizer initcheck'
expect ok 'sanitizer synccheck'
grep -q '4 questions, 2 failures' hanging/summary.txt || fail "--only asked for something else"

# With two cards each rank has one, and no question but "hosts" makes ranks share; with one card ranks share it.
first_contact_on() { # CARDS [options]
    DDPC_EMULATED_GPUS=$1 "$first_contact" --quick --build "$build" "${@:2}" >out.txt 2>err.txt ||
        fail "$1 cards, ${*:2}: $(cat out.txt err.txt)"
}
first_contact_on 2 --only transport --out two
[ "$(grep -c '^transport .* ok ' two/summary.txt)" = 3 ] || fail "transports: $(cat two/summary.txt)"
for cards in 1 2; do
    first_contact_on $cards --list
    checks=$((checks + 1))
    sharing=$(grep -e --fake-hosts out.txt | cut -f 1 | tr '\n' ' ')
    [ "$sharing" = "$([ $cards = 1 ] && echo 'graph ')hosts NCCL 4096 $([ $cards = 1 ] &&
        echo 'kill figure all-reduce blocking=0 figure all-reduce blocking=1 ')" ] || fail "$cards cards: sharing: $sharing"
done

# What the full questions would start is there: programs, scripts, the tests that CTest knows, those of the tools.
"$first_contact" --list --build "$build" >list.txt 2>err.txt || fail "--list: status $?"
for name in plans 'kernels test_cuda_kernels' 'kernels test_kernels_halves' 'sanitizer initcheck' 'hosts NCCL 67108864' \
    'figure channels-last' peers; do
    checks=$((checks + 1))
    grep -q "^$name	" list.txt || fail "--list lacks $name"
done
tr '\t' '\n' <list.txt | grep '^/' | sort -u >paths.txt
while read -r path; do
    checks=$((checks + 1))
    [ -e "$path" ] || fail "a question needs $path, which is not there"
done <paths.txt
checks=$((checks + 1))
bash "${first_contact%.sh}/sanitizer.sh" "$build/bin" memcheck full "$PWD/tools/compute-sanitizer" >tests.txt ||
    fail "$(cat tests.txt)"
bash "${first_contact%.sh}/sanitizer.sh" "$build/bin" racecheck full "$PWD/tools/compute-sanitizer" >tests.txt &&
    fail "a race is not reported"
[ "$(grep -c '^a race' tests.txt)" = "$(grep -c '^== ' tests.txt)" ] || fail "a race hides the other tests"

bash "${first_contact%.sh}/sanitizer.sh" "$build/bin" initcheck full "$PWD/tools/compute-sanitizer" >tests.txt ||
    fail "what initcheck finds in a library's kernel: $(cat tests.txt)"
grep -q '^initcheck: 8 tests, nothing found but in libraries, in 8$' tests.txt || fail "$(cat tests.txt)"
OWN_FINDING=1 bash "${first_contact%.sh}/sanitizer.sh" "$build/bin" initcheck quick \
    "$PWD/tools/compute-sanitizer" >tests.txt && fail "what initcheck finds in an own kernel is not reported"

status=0
"$first_contact" --colour >out.txt 2>err.txt || status=$?
[ $status = 2 ] || fail "an option that is not known: status $status"
tally first_contact_quick
