#!/bin/sh
# option_mixes.sh BIN_DIR: rarely used options in combination. For each mix, DataParallel on three devices and
# DistributedDataParallel on three ranks, with further options of its own, end with equal bits in weights, buffers and
# optimizer state; so does a run that was stopped and resumed.
#
# Batches do not divide evenly among the three, and the last batch of an epoch is short.
. "$(dirname "$0")/checks.sh"

# mix NAME 'OPTIONS' 'OPTIONS OF DDP' [resume]: options are split at spaces
mix() {
    name=$1
    # shellcheck disable=SC2086 # the options are words
    run "$name, dp" "$bin/train_dp" --devices 3 --no-eval --steps 12 $2 --save "$name.dp"
    # shellcheck disable=SC2086
    run "$name, ddp" "$bin/ddprun" --nproc-per-node 3 "$bin/train_ddp" --no-eval --steps 12 \
        --sampler blocked --normalize global $2 $3 --save "$name.ddp"
    same "$name.dp" "$name.ddp"
    [ "${4:-}" = resume ] || return 0
    # shellcheck disable=SC2086
    run "$name, first half" "$bin/ddprun" --nproc-per-node 3 "$bin/train_ddp" --no-eval --steps 5 \
        --sampler blocked --normalize global $2 $3 --save "$name.half"
    # shellcheck disable=SC2086
    run "$name, second half" "$bin/ddprun" --nproc-per-node 3 "$bin/train_ddp" --no-eval --steps 12 \
        --sampler blocked --normalize global $2 $3 --resume "$name.half" --save "$name.resumed"
    same "$name.dp" "$name.resumed"
}

mix adamw "--model mlp --hidden 40,30 --global-batch 61 --optimizer adamw --weight-decay 0.1
    --lr 0.003 --schedule constant" "--no-overlap --bucket-cap-mb 0" resume
mix nesterov "--model convnet --global-batch 50 --nesterov --schedule polynomial --power 1.5
    --warmup-steps 4 --warmup-start 0.2" "--find-unused-parameters --no-gradient-as-bucket-view"
mix half "--model convnet --augment --amp fp16 --global-batch 37 --optimizer adam --betas 0.8,0.95
    --lr 0.002 --schedule constant" "--static-graph --bucket-cap-mb 0.001" resume
mix pixels "--model segnet --data shapes:16x16@40 --ohem-threshold 0.8 --global-batch 7 --no-shuffle
    --lr 0.02 --schedule constant" "--comm-hook allreduce --bucket-cap-mb 0.01 --no-overlap" resume
mix regression "--model mlp --hidden 20 --data synthetic:10:5@47 --global-batch 10 --schedule step
    --step-every 3 --gamma 0.5 --lr 0.01" "--static-graph --no-gradient-as-bucket-view" resume
mix brain "--model mlp --hidden 20 --amp bf16 --global-batch 20 --momentum 0 --weight-decay 0
    --seed 4294967299" "--find-unused-parameters --comm-hook allreduce --no-overlap"
# A mean of local means over unequal shares differs from one device's gradient: refused.
checks=$((checks + 1))
status=0
"$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --steps 2 --global-batch 61 --sampler blocked \
    >out.txt 2>err.txt </dev/null || status=$?
[ "$status" = 2 ] && grep -q '61 rows does not divide among 2 ranks: use --normalize global' err.txt ||
    fail "uneven shares: status $status: $(cat err.txt)"

# Records of a run: learning rates during warm-up; the checkpoint's score, although each rank has its own running
# statistics; and no best checkpoint of an earlier run in the folder.
short="--model convnet --steps 5 --warmup-steps 4 --schedule constant --lr 0.08 --out said.d"
# shellcheck disable=SC2086
run 'a run that evaluates' "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" $short --save said
checks=$((checks + 3))
[ "$(sed 1d said.d/steps.csv | cut -d, -f1,3 | tr '\n' ' ')" = '0,0.02 4,0.08 ' ] ||
    fail "rates: $(cut -d, -f1,3 said.d/steps.csv)"
"$bin/train_single" --model convnet --evaluate said >single.txt 2>err.txt </dev/null || fail "$(cat err.txt)"
score=$(sed -n 's/^evaluated=said //p' single.txt)
[ "$score" ] && [ "$score" = "$(sed -n 's/^epoch=0 \(test_loss\)/\1/p' out.txt)" ] ||
    fail "said: $(cat out.txt) evaluated again: $(cat single.txt)"
# shellcheck disable=SC2086
run 'the same without evaluating' "$bin/train_single" $short --no-eval
[ ! -e said.d/best.safetensors ] || fail "the best checkpoint of another run was left in the folder"
# An equal score is not better. The name of the optimizer file contains the best checkpoint's step.
# shellcheck disable=SC2086
run 'two epochs, equally good' "$bin/train_single" --model mlp --epochs 2 --lr 1e-30 --out even
checks=$((checks + 2))
[ -e even/best.safetensors.25.*.optimizer ] || fail "not the first of two that are equal: $(ls even)"
# Ranks with different options.
cat >other-rate.sh <<'END'
[ "$RANK" = 0 ] || set -- "$@" --lr 0.01
exec "$@"
END
status=0
"$bin/ddprun" --nproc-per-node 2 sh other-rate.sh "$bin/train_ddp" --model mlp --steps 2 >out.txt 2>err.txt ||
    status=$?
[ "$status" = 2 ] && grep -q -- '--lr' err.txt || fail "two rates: status $status: $(cat err.txt)"
tally option_mixes
