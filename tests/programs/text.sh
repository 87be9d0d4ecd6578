#!/bin/sh
# text.sh BIN_DIR: a small GPT learns text: the shipped text, a user's, and token files. DataParallel and
# DistributedDataParallel end with equal bits and then write the same text; resuming requires the same text; an
# evaluation's result is independent of the number of processes.
. "$(dirname "$0")/checks.sh"
PATH=$bin:$PATH
tiny="--model gpt --layers 2 --heads 2 --embedding 16 --context 8 --optimizer adamw --lr 3e-3"
tiny="$tiny --log-every 1"
value() { sed -n "s/.*[ ^]$1=\([^ ]*\).*/\1/p" out.txt | tail -n 1; }
near() { awk "BEGIN { d = $2 - $3; exit !(d < $4 && -d < $4) }" || fail "$1: $2, not $3"; }

# ---- a user's text: 2,000 sentences; the last 200 have a letter that the others lack -----------------------------
i=0
while [ $i -lt 2000 ]; do
    [ $i -lt 1900 ] && echo "the cat sat on mat $((i % 7))." || echo "the cat sat on rug $((i % 7))?"
    i=$((i + 1))
done >cat.txt
own="$tiny --data cat.txt --global-batch 12 --steps 60 --warmup-steps 6 --clip-grad-norm 1"
run "single" train_single $own --out single --save one --sample 120
cp out.txt one.out
checks=$((checks + 6))
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { p = $at["perplexity"]; b = $at["bits"]; l = $at["loss"]; d = log(p) - l; e = b * log(2) - l }
    d > 1e-5 || -d > 1e-5 || e > 1e-5 || -e > 1e-5 { exit 1 }' single/steps.csv || fail "steps.csv: bits and perplexity"
near "the loss of the test part as bits" "$(value test_bits)" "$(awk "BEGIN { print $(value test_loss) / log(2) }")" 1e-3
awk "BEGIN { a = $(value test_accuracy); exit !(a > 0.1 && a < 1) }" || fail "accuracy $(value test_accuracy)"
awk "BEGIN { exit !($(value loss) < 2.3) }" || fail "nothing is learnt: $(value loss)"
grep -q '"test_perplexity"' single/summary.json || fail "summary.json lacks test_perplexity"
grep -q '"context": 8' single/config.json || fail "config.json lacks the context"

# Batches of an evaluation are at most as large as training's: it needs little more memory.
peak() { sed -n 's/.*"peak_bytes_device0": \([0-9]*\).*/\1/p' "$1/summary.json"; }
for batch in 12 1; do
    for how in "" --no-eval; do
        run "batches of $batch $how" train_dp --devices 2 $own --global-batch $batch --steps 3 --warmup-steps 1 $how --out "memory$how"
    done
    checks=$((checks + 1))
    [ "$(peak memory)" -lt $(($(peak memory--no-eval) * 101 / 100)) ] || fail "batches of $batch: $(peak memory) bytes with an evaluation, $(peak memory--no-eval) without"
done

# ---- equal bits and text ---------------------------------------------------------------------------------------
sampled() { sed -n '/^sample /,$p' "$1"; }
[ "$(sampled one.out | head -n 1)" = "sample tokens=120 seed=0" ] || fail "no sample: $(sampled one.out)"
for n in 2 3; do
    run "dp $n" train_dp --devices $n $own --save dp$n --sample 120
    sampled out.txt >dp$n.sample
    run "ddp $n" ddprun --nproc-per-node $n train_ddp $own --sampler blocked --normalize global --save ddp$n --sample 120
    sampled out.txt >ddp$n.sample
    same dp$n ddp$n
    checks=$((checks + 1))
    cmp -s dp$n.sample ddp$n.sample || fail "$n devices write another text as ranks: $(cat ddp$n.sample)"
done
run "ddp 2, PyTorch's rows" ddprun --nproc-per-node 2 train_ddp $own --bucket-cap-mb 0.01 --no-overlap --save mean
run "written again" train_single $tiny --data cat.txt --evaluate one --sample 120
checks=$((checks + 3))
[ "$(sampled out.txt)" = "$(sampled one.out)" ] || fail "--evaluate writes another text: $(sampled out.txt)"
[ "$(value test_loss)" = "$(sed -n 's/.* test_loss=\([^ ]*\).*/\1/p' one.out | tail -n 1)" ] || fail "--evaluate: $(cat out.txt)"
run "another seed" train_single $tiny --data cat.txt --evaluate one --sample 120 --seed 1
[ "$(sampled out.txt | tail -n +2)" != "$(sampled one.out | tail -n +2)" ] || fail "--seed changes nothing"
for n in 2 3; do
    run "evaluation by $n" ddprun --nproc-per-node $n train_ddp $tiny --data cat.txt --evaluate one
    checks=$((checks + 1))
    near "$n ranks" "$(value test_loss)" "$(sed -n 's/.* test_loss=\([^ ]*\).*/\1/p' one.out | tail -n 1)" 2e-6
done

# ---- resuming ----------------------------------------------------------------------------------------------------
run "thirty steps" train_single $own --steps 30 --schedule constant --no-eval --save half
run "thirty more" train_single $own --schedule constant --no-eval --resume half --save half
run "sixty steps" train_single $own --schedule constant --no-eval --save whole
same whole half
sed 's/sat/tas/' cat.txt >cow.txt
refuse 2 'a text whose hash is' train_single $own --data cow.txt --schedule constant --no-eval --resume half
refuse 2 'half: ' train_single $own --context 4 --schedule constant --no-eval --resume half

# ---- token files ---------------------------------------------------------------------------------------------------
mkdir tokens
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%c%c", 65 + i % 5, 0 }' >tokens/train.bin
head -c 400 tokens/train.bin >tokens/val.bin
run "tokens" train_single $tiny --data tokens --global-batch 8 --steps 60 --lr 1e-2 --sample 10
checks=$((checks + 2))
awk "BEGIN { exit !($(value loss) < 3) }" || fail "no token is learnt: $(value loss)"
echo "$(sampled out.txt | tail -n 1)" | grep -Eqx '[0-9]+( [0-9]+){9}' || fail "no ten tokens: $(sampled out.txt)"
head -c 399 tokens/val.bin >odd && mv odd tokens/val.bin
refuse 2 'tokens/val.bin: 399 bytes of tokens' train_single $tiny --data tokens

# ---- invalid files and combinations --------------------------------------------------------------------------------
refuse 2 'mlp predicts samples, but text has labels of tokens' train_single --data text
refuse 2 'gpt predicts tokens, but digits has labels of samples' train_single --model gpt --data digits
refuse 2 '--context has no effect' train_single --context 8
refuse 2 '--sample has no effect' train_single --sample 8
refuse 2 '--hidden has no effect' train_single --model gpt --hidden 8
refuse 2 'cat.txt: has 20 different tokens, --vocabulary is 19' train_single $tiny --data cat.txt --vocabulary 19
run "the summary" train_single --model gpt --summary
grep -q '^gpt for samples of 64 tokens out of 74 (text)' out.txt || fail "--summary: $(head -n 1 out.txt)"
tally text
