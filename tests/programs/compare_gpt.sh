#!/bin/sh
# compare_gpt.sh BIN_DIR: bench/compare.sh --model gpt finds the same bits in DataParallel and DistributedDataParallel:
# with a weight that two layers share, AdamW and one norm of all gradients, on 2, 4, 3 and 5 devices.
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
. "$(dirname "$0")/checks.sh"
run "compare.sh" "$bench/compare.sh" --bin "$bin" --only-equivalence --model gpt --world "2 4" --out gpt
for pair in "dp:2,ddp:2" "dp:4,ddp:4" "dp:3 uneven,ddp:3 uneven" "dp:5 adamw,ddp:5 adamw" "ddp:2,ddp:2 cap=0" \
    "ddp:2,ddp:2 no-overlap" "dp:2,single:1"; do
    checks=$((checks + 1))
    [ "$(grep -c "^gpt,$pair,weight,.*transformer.wte.weight" gpt/equivalence.csv)" -ge 1 ] || fail "no row of $pair"
done
checks=$((checks + 1))
[ "$(grep -c 'lm_head.weight' gpt/equivalence.csv)" = 0 ] || fail "the tied weight is compared twice"
tally compare_gpt
