#!/bin/sh
# text_learning.sh BIN_DIR: does a GPT learn Shakespeare? gpt-small takes 2,000 steps of 12 samples; after them the test
# part must cost at most 2.0 nats a character (2.9 bits; a character by itself has 4.8 bits, a pair's second 3.6), on
# one device, under DataParallel and under DistributedDataParallel, which reach the same bits.
. "$(dirname "$0")/checks.sh"
PATH=$bin:$PATH
plan="--model gpt-small --global-batch 12 --steps 2000 --optimizer adamw --lr 1e-3 --schedule cosine --warmup-steps 100"
plan="$plan --drop-last --clip-grad-norm 1 --log-every 500"
learn() { # NAME COMMAND...
    name=$1
    shift
    run "$name" "$@" $plan --save "$name" --sample 300
    checks=$((checks + 1))
    loss=$(sed -n 's/.* test_loss=\([^ ]*\).*/\1/p' out.txt | tail -n 1)
    echo "$name: test_loss=$loss"
    awk "BEGIN { exit !($loss <= 2.0) }" || fail "$name: $loss nats"
}
learn single train_single
sed -n '/^sample /,$p' out.txt
learn dp train_dp --devices 2 --bind cores
learn ddp ddprun --nproc-per-node 2 --bind cores train_ddp --sampler blocked
same dp ddp
tally text_learning
