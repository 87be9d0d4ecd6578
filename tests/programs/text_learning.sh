#!/bin/sh
# text_learning.sh BIN_DIR: a GPT learns Shakespeare: gpt-small trains for 2,000 steps of 12 samples; its loss on the
# test part must then be at most 2.0 nats per character (2.9 bits; single characters have 4.8 bits, the second of a pair
# 3.6), on one device, with DataParallel and with DistributedDataParallel, which have equal bits.
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
