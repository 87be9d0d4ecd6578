#!/bin/sh
# compare_gpt.sh BIN_DIR: bench/compare.sh --model gpt finds equal bits of DataParallel and DistributedDataParallel,
# also with the sharded optimizer: with a tied weight, AdamW and clipping by one norm, on 2, 4, 3 and 5 devices. The
# memory that the sharded optimizer saves is shown beside DDP's.
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
. "$(dirname "$0")/checks.sh"
run "compare.sh" "$bench/compare.sh" --bin "$bin" --quick --repeats 1 --patience 0 --model gpt --world "2 4" --out gpt
for pair in "dp:2,ddp:2" "dp:4,ddp:4" "dp:3 uneven,ddp:3 uneven" "dp:5 adamw,ddp:5 adamw" "ddp:2,ddp:2 cap=0" \
    "ddp:2,ddp:2 no-overlap" "dp:2,single:1" "ddp:3 adamw,zero1:3 adamw" "ddp:5 adamw,fsdp:5 adamw" "ddp:5 unclipped,zero1:5 unclipped"; do
    checks=$((checks + 1))
    [ "$(grep -c "^gpt,$pair,weight,.*transformer.wte.weight" gpt/equivalence.csv)" -ge 1 ] || fail "no row of $pair"
done
# The tied weight is one parameter, with one gradient and one optimizer state; a file of weights has both of its names,
# as PyTorch's has.
checks=$((checks + 2))
[ "$(grep -cE ',(gradient|optimizer),[^,]*,lm_head.weight,' gpt/equivalence.csv)" = 0 ] || fail "the tied weight has two gradients"
[ "$(grep -cE ',weight,[^,]*,lm_head.weight,' gpt/equivalence.csv)" -ge 1 ] || fail "no weights by the name lm_head.weight"

# With the sharded optimizer each of two ranks has half of the state. Together they save the state of one of DDP's
# ranks: 8 bytes per parameter, exactly.
memory_of() { # STRATEGY: sum over both ranks
    awk -F, -v strategy="$1" 'FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        $at["strategy"] == strategy && $at["world_size"] == 2 { print $at["peak_bytes_device0"] + $at["peak_bytes_other"] }' gpt/summary.csv
}
parameters=$(sed -n 's/.*"parameters": *\([0-9]*\).*/\1/p' gpt/runs/speed-gpt-ddp-2-1/summary.json)
checks=$((checks + 1))
[ "$(($(memory_of ddp) - $(memory_of zero1)))" = "$((8 * parameters))" ] ||
    fail "$parameters parameters: $(memory_of ddp) bytes, and $(memory_of zero1) with the optimizer divided"
for world in 2 4; do
    checks=$((checks + 1))
    for how in "with the optimizer divided (ZeRO-1)" "fully sharded (FSDP)"; do
        grep -q "gpt, $world devices: $how, a rank holds .* less" gpt/report.md || fail "report.md: no sentence of $world ranks, $how"
    done
done
tally compare_gpt
