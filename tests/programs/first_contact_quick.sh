#!/usr/bin/env bash
# first_contact_quick.sh BIN BUILD: tests/first_contact.sh on the emulator: it runs all checks in order; a check that
# fails, hangs, breaks CUDA or leaves processes behind does not prevent the others, until two of them hang; the
# archive's index describes each failure.
set -euo pipefail
. "$(dirname "$0")/checks.sh"
build=$2
first_contact=$(cd "$(dirname "$0")/../.." && pwd)/tests/first_contact.sh

# A simulated compute-sanitizer whose tools misbehave in all ways that must be survived; nvidia-smi and kernel log of a
# faulty GPU; no PyTorch.
export PYTHON=/bin/false
mkdir tools
cat >tools/compute-sanitizer <<'END'
#!/bin/sh
# --tool TOOL [--target-processes all] --error-exitcode 9 PROGRAM
tool=$2
shift 2
[ "$1" != --target-processes ] || shift 2
[ -x "$3" ] || [ "$3" = env ] || { echo "FAILED: there is no $3"; exit 8; }
sleep "${SLOW:-0}"
case $tool in
memcheck)
    [ -z "${LEAVE_BEHIND:-}" ] || { setsid sleep 300 >/dev/null 2>&1 & }
    [ -z "${DDPC_EMULATED_KERNEL_FAILS_AT:-}" ] || { echo "========= Invalid __global__ read of size 4 bytes"; exit 9; }
    ;;
racecheck) echo "a race"; exit 9 ;;
initcheck)
    echo "=========     at 0x50 in void cutlass::Kernel2<cutlass_80_simt_sgemm>(T1::Params)"
    [ -z "${OWN_FINDING:-}" ] || echo "=========     at sum_columns(float*, float const*)+0x50 in norm.cu:12"
    exit 9
    ;;
esac
END
cat >tools/nvidia-smi <<'END'
#!/bin/sh
case "$*" in
*clocks.sm*)
    echo "timestamp, index, clocks.current.sm [MHz], clocks.current.memory [MHz], temperature.gpu, power.draw [W]," \
        "clocks_event_reasons.hw_slowdown, clocks_event_reasons.sw_power_cap"
    echo "2026/01/01 10:00:00.000, 0, 1590, 5000, 60, 68.5, Not Active, Not Active"
    echo "2026/01/01 10:00:05.000, 0, 585, 5000, 85, 70.1, Active, Not Active"
    exec sleep 600
    ;;
*name,memory*) echo "0, Tesla T4, 15360 MiB, 535.104.05, 3, 16" ;;
*) echo "| N/A   85C    P0    70W /  70W |   1024MiB / 15360MiB |    100%      Default |" ;;
esac
END
printf '#!/bin/sh\necho "[Thu Jan  1 10:00:07] NVRM: Xid (PCI:0000:00:04): 79, GPU has fallen off the bus."\n' >tools/dmesg
chmod +x tools/*
export PATH=$PWD/tools:$PATH

# contact STATUS FOLDER OPTION...
contact() {
    wanted=$1 folder=$2 status=0 line=0
    shift 2
    checks=$((checks + 1))
    "$first_contact" --quick --build "$build" --out "$folder" "$@" >out.txt 2>err.txt || status=$?
    [ $status = "$wanted" ] || fail "status $status, not $wanted: $*: $(cat out.txt err.txt)"
}

# expect WORD NAME: in the order of the checks
expect() {
    checks=$((checks + 1))
    at=$(grep -n -m 1 "^    $2  *$1 " "$folder/index.md" | cut -d : -f 1 || true)
    [ -n "$at" ] || { fail "$2 is not $1: $(cat "$folder/index.md")" && return; }
    [ "$at" -gt "$line" ] || fail "$2 comes too early"
    line=$at
}

# tells REGULAR_EXPRESSION...: the index has such lines
tells() {
    for words in "$@"; do
        checks=$((checks + 1))
        grep -qE -- "$words" "$folder/index.md" || fail "the index lacks \"$words\": $(cat "$folder/index.md")"
    done
}

# nothing_left: no process of a check is alive
nothing_left() {
    checks=$((checks + 1))
    left=$(grep -slz '^FIRST_CONTACT_QUESTION=' /proc/[0-9]*/environ | tr '\n' ' ' || true)
    [ -z "$left" ] || fail "processes of questions are alive: $left"
}

# ---- all checks, on one card ----------------------------------------------------------------------------------------

contact 1 folder --minutes 60
for question in smoke 'test test_cuda_layout' 'test test_cuda_attention' 'NCCL 4096' graph gpt2 account memcheck kill \
    'sharing NCCL 4096' 'figure bounds' 'figure graph-gap' 'figure product' 'figure channels-last' 'figure gelu' 'figure all-reduce blocking=0' \
    'figure all-reduce blocking=1' plans; do
    expect ok "$question"
done
expect skipped 'peers gpt2'
expect skipped 'peers one device'
expect ok 'sanitizer memcheck'
expect FAILED 'sanitizer racecheck'
expect ok 'sanitizer initcheck'
expect ok 'sanitizer synccheck'
right=20 # in four precisions; cards below 8.0 lack bf16 and TF32
[ "${DDPC_EMULATED_CAPABILITY:-90}" -ge 80 ] || right=10
tells '^24 questions, 21 ok, 2 skipped, 1 FAILED\.$' '^### FAILED: sanitizer racecheck' '^    a race$' 'Tesla T4, 15360 MiB' \
    'GPU 0: 585 to 1590 MHz, up to 85 C and 70 W in 2 samples; held back: hw_slowdown in 1$' "20 trainings: $right with the CPU" \
    'fp32, batch 2: .* tokens/s' 'logits, 768 to 50257 .* TFLOP/s'
[ "$(tar -tzf folder.tar.gz | grep -cE '^folder/(index.md|machine/libraries.txt|clocks.csv|01-smoke.log)$')" = 4 ] ||
    fail "the archive: $(tar -tzf folder.tar.gz)"

# ---- failures ---------------------------------------------------------------------------------------------------------

# A hang is diagnosed and ended; after the second one no further check runs.
DDPC_EMULATED_GPUS=2 DDPC_EMULATED_NCCL_HANG_AT=3 FIRST_CONTACT_SECONDS=6 contact 1 hanging --only transport
expect HANGS 'transport NCCL_NVLS_ENABLE=0'
expect HANGS 'transport NCCL_P2P_DISABLE=1'
tells '^2 questions, 2 HANGS; 3 not asked, because two questions hang\.$' '^    transport NCCL_PROTO=LL128 *not asked$' \
    'ranks 0, 1 started and did not complete collective 2 all_reduce\(F32, 1024, sum\)' '^    rank 1, process [0-9]+: ' \
    'Xid .*79, GPU has fallen off the bus' '85C .* 100%'
if command -v gdb >/dev/null; then tells '^      thread 1 .* < all_reduce < '; fi
nothing_left

# An error of CUDA: the check is repeated with blocking launches, which name the kernel.
DDPC_EMULATED_KERNEL_FAILS_AT=2 contact 1 broken --only 'figure product'
expect FAILED 'figure product'
tells 'cudaErrorIllegalAddress' '^- with CUDA_LAUNCH_BLOCKING=1.*: status 134: .*cuda_launch_blocks_on.*fill' \
    '^    ========= Invalid __global__ read of size 4 bytes'

# A process that outlives its check.
LEAVE_BEHIND=1 contact 1 orphans --only memcheck
expect FAILED memcheck
tells 'left processes behind: [0-9]+$'
nothing_left

# The time limit is reached.
SLOW=30 contact 0 short --only sanitizer --minutes 0.2
expect unfinished 'sanitizer memcheck'
tells '^1 question, 1 unfinished; 3 not asked, because the minutes were over\.$'

DDPC_EMULATED_GPUS=0 contact 77 none
[ ! -e none ] || fail "a folder without a GPU"
contact 2 folder
grep -q '^error: .*is not empty' err.txt || fail "a folder with an archive is taken: $(cat err.txt)"
contact 2 other --colour
contact 2 other --minutes ten

# ---- the list of checks -----------------------------------------------------------------------------------------------

# With two cards each rank has its own, and only the check "sharing" makes ranks share; with one card all ranks share
# it.
for cards in 1 2; do
    DDPC_EMULATED_GPUS=$cards "$first_contact" --quick --build "$build" --list >out.txt 2>err.txt || fail "$(cat err.txt)"
    checks=$((checks + 1))
    sharing=$(grep -e --fake-hosts out.txt | cut -f 1 | tr '\n' ' ')
    [ "$sharing" = "$([ $cards = 1 ] && echo 'NCCL 4096 graph kill ')sharing NCCL 4096 $([ $cards = 1 ] &&
        echo 'figure all-reduce blocking=0 figure all-reduce blocking=1 ')" ] || fail "$cards cards: sharing: $sharing"
done
DDPC_EMULATED_GPUS=2 contact 0 two --only 'all cards'
DDPC_EMULATED_GPUS=2 contact 0 links --only bandwidth
tells '^     *4096 .* 0$'

# Everything that the full checks start exists: programs, scripts, CTest's tests, the tools' tests.
DDPC_EMULATED_GPUS=2 "$first_contact" --list --build "$build" >list.txt 2>err.txt || fail "--list: status $?"
for name in smoke 'test test_cuda_kernels' 'test test_kernels_halves' 'NCCL 67108864' bandwidth 'peers gpt2 by DDP' \
    'test nccl_training' 'sanitizer initcheck'; do
    checks=$((checks + 1))
    grep -q "^$name	" list.txt || fail "--list lacks $name"
done
tr '\t' '\n' <list.txt | grep '^/' | grep -vE '/out/peers(-one)?$' | sort -u >paths.txt
while read -r path; do
    checks=$((checks + 1))
    [ -e "$path" ] || fail "a question needs $path, which is not there"
done <paths.txt

sanitize() { # STATUS TOOL SIZE
    status=0
    checks=$((checks + 1))
    bash "${first_contact%.sh}/sanitizer.sh" "$build/bin" "$2" "$3" "$PWD/tools/compute-sanitizer" >tests.txt || status=$?
    [ $status = "$1" ] || fail "$2 $3: status $status: $(cat tests.txt)"
}
sanitize 0 memcheck full
sanitize 1 racecheck full
[ "$(grep -c '^a race' tests.txt)" = "$(grep -c '^== ' tests.txt)" ] || fail "a race hides the other tests"
sanitize 0 initcheck full
grep -q '^initcheck: 10 tests, nothing found but in libraries, in 10$' tests.txt || fail "$(cat tests.txt)"
OWN_FINDING=1 sanitize 1 initcheck quick
tally first_contact_quick
