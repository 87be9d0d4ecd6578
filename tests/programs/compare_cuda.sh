#!/usr/bin/env bash
# compare_cuda.sh BIN_DIR: bench/compare.sh --device cuda from end to end on the emulated GPU: one card shared by two
# replicas or two ranks. The equivalences hold, and no time is shown, because the card is emulated or shared; without a
# GPU the script ends with 77 and one line.
set -euo pipefail
bin=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=0 failures=0
command -v gnuplot >/dev/null || { echo "skipped: no gnuplot" && exit 77; }

check() { # WHAT COMMAND...
    local what=$1
    checks=$((checks + 1))
    shift
    "$@" >"$work/log" 2>&1 && return 0
    failures=$((failures + 1))
    echo "FAILED: $what"
    tail -n 20 "$work/log"
}

compare() { # GPUS OPTION...
    DDPC_EMULATED_GPUS=$1 timeout 250 "$root/bench/compare.sh" --quick --device cuda --bin "$bin" \
        --model mlp --world 2 "${@:2}"
}

status=0
compare 0 --out "$work/none" >"$work/out" 2>&1 || status=$?
check "status 77 without a GPU, not $status" test "$status" = 77
check "one line without a GPU" test "$(wc -l <"$work/out")" = 1
check "why" grep -q '^error: device cuda:0: ' "$work/out"
check "nothing written" test ! -e "$work/none"

out=$work/out1
check "one card" compare 1 --out "$out"
cp "$work/log" "$work/printed"
check "equivalence" grep -q '^Equivalence: held in all ' "$work/printed"
check "why there are no times" grep -q 'no timing means anything' "$work/printed"
check "and in the report" grep -q 'no timing means anything' "$out/report.md"
check "a row per configuration" test "$(wc -l <"$out/summary.csv")" = 5
check "no times" awk -F, 'NR > 1 && ($7 $8 $9 $10 $16 $28) != "0" { exit 1 }' "$out/summary.csv"
check "memory" awk -F, 'NR > 1 && !($11 > 0) { exit 1 }' "$out/summary.csv"
check "over NCCL" grep -q '^ddp,mlp,cuda,nccl,2,' "$out/summary.csv"
check "replicas on one card" grep -q -- '--device-ids 0,0 ' "$out/commands.txt"
check "ranks on one card" grep -q -- '--fake-hosts --nproc-per-node 2 ' "$out/commands.txt"
check "to a tolerance" awk -F, 'NR > 1 && $12 != "tolerance" { exit 1 }' "$out/equivalence.csv"
check "captured steps" grep -q '^mlp,ddp:2,ddp:2 graph,gradient,10,' "$out/equivalence.csv"
for figure in throughput phases memory timeline; do
    check "no $figure" test ! -e "$out/$figure.svg"
    check "no $figure in the report" eval '! grep -q "$figure.svg" "$out/report.md"'
done
check "the loss" test -s "$out/loss.svg"

echo "compare_cuda: $checks checks, $failures failures"
[ "$failures" = 0 ]
