#!/bin/sh
# nccl_headers_rules.sh BIN: nccl_headers.sh passes with the emulator's headers, which declare the same as NCCL 2.19's;
# fails with a header that lacks a function or declares it differently; and is skipped if nothing can be downloaded.
. "$(dirname "$0")/../programs/checks.sh"
tests=$(cd "$(dirname "$0")/.." && pwd)
headers=$tests/emulator/include

table() { # STATUS FOLDER
    status=0
    checks=$((checks + 1))
    "$tests/group/nccl_headers.sh" --cuda "$headers" "$2" >table.txt 2>&1 || status=$?
    [ "$status" = "$1" ] || fail "status $status, not $1, with $2: $(cat table.txt)"
}
table 0 "$headers"
grep -q '^2\.20\.5 .* ok ' table.txt || fail "no row of 2.20.5: $(cat table.txt)"

mkdir -p "without it" "other type"
sed '/ncclCommRegister(/d' "$headers/nccl.h" >"without it/nccl.h"
sed 's/ncclMemAlloc(void \*\*memory/ncclMemAlloc(int memory/' "$headers/nccl.h" >"other type/nccl.h"
table 1 "without it"
grep -q "^    ddp/group/nccl/pg_nccl.c:.*ncclCommRegister" table.txt || fail "who lacks what is not said: $(cat table.txt)"
table 1 "other type"

status=0
XDG_CACHE_HOME=$work/cache PIP_NO_INDEX=1 "$tests/group/nccl_headers.sh" --cuda "$headers" >table.txt 2>&1 || status=$?
[ "$status" = 77 ] && grep -q '^skipped: ' table.txt || fail "nothing to download: status $status: $(cat table.txt)"
tally nccl_headers_rules
