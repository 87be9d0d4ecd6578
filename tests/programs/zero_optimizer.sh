#!/bin/sh
# zero_optimizer.sh BIN_DIR: train_ddp --zero-optimizer ends with the bits of train_ddp without it, in weights, buffers
# and optimizer state. Their checkpoints are interchangeable: a run resumes from either, on another number of ranks,
# with the optimizer sharded or not. Unsupported combinations are refused by name.
. "$(dirname "$0")/checks.sh"

# train WORLD FILE OPTION...
train() {
    ranks=$1 file=$2
    shift 2
    run "$file" "$bin/ddprun" --nproc-per-node "$ranks" "$bin/train_ddp" --no-eval --lr 0.003 --steps 8 \
        --save "$file" "$@"
}

# mix NAME WORLD OPTION...: compares runs with and without the sharded optimizer.
mix() {
    name=$1 world=$2
    shift 2
    train "$world" "$name.ddp" "$@"
    train "$world" "$name.zero" --zero-optimizer "$@"
    same "$name.ddp" "$name.zero"
}

adamw="--model mlp --optimizer adamw --weight-decay 0.1 --schedule constant"
# shellcheck disable=SC2086 # the options are words
{
    mix three 3 $adamw --normalize global
    mix five 5 $adamw --normalize global --global-batch 61 --sampler blocked --bucket-cap-mb 0
    mix momentum 2 --model convnet --momentum 0.9 --nesterov --accumulate-steps 2 --bucket-cap-mb 0.05
    mix clipped 3 $adamw --clip-grad-norm 0.3 --no-overlap
    mix link 3 $adamw --link 10,20 --bucket-cap-mb 0.1 # ranks cannot access each other's memory
    mix clipped_link 2 $adamw --link 10,20 --clip-grad-norm 0.3
    mix half 2 $adamw --amp fp16
    mix unused 2 $adamw --find-unused-parameters

    # --dump-grads writes whole gradients with it, too.
    train 2 dumped.ddp $adamw --dump-grads grads.ddp --dump-step 3
    train 2 dumped.zero $adamw --dump-grads grads.zero --dump-step 3 --zero-optimizer
    run 'gradients' "$bin/compare_tensors" --bitwise grads.ddp grads.zero

    # Steps 8 to 12, resumed from the other kind of checkpoint, on two ranks instead of three.
    train 2 resumed.ddp $adamw --normalize global --steps 12 --resume three.ddp
    train 2 resumed.zero $adamw --normalize global --steps 12 --resume three.ddp --zero-optimizer --comm-hook none
    train 2 resumed.from_zero $adamw --normalize global --steps 12 --resume three.zero
    train 2 resumed.both $adamw --normalize global --steps 12 --resume three.zero --zero-optimizer
    for other in zero from_zero both; do same resumed.ddp "resumed.$other"; done
}

# A rank has half of the optimizer state: 8 + 8/2 bytes per parameter instead of 16. Both ranks together save exactly
# the state of one of DDP's ranks. (All tensors of this model are whole cache lines.)
memory() { # FOLDER: sum over both ranks
    sed -n 's/.*"peak_bytes_[a-z0-9]*": *\([0-9]*\).*/\1/p' "$1/summary.json" | awk '{ n += $1 } END { print n }'
}
# shellcheck disable=SC2086
for way in '' --zero-optimizer; do
    run "memory $way" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --no-eval --steps 3 --model gpt --data text \
        --global-batch 4 --optimizer adamw --out "out$way" $way
done
checks=$((checks + 1))
parameters=$(sed -n 's/.*"parameters": *\([0-9]*\).*/\1/p' out/summary.json)
saved=$(($(memory out) - $(memory out--zero-optimizer)))
[ "$saved" = $((8 * parameters)) ] || fail "$parameters parameters: $saved bytes less, not $((8 * parameters))"

# bench_zero: every way ends with DDP's weights. (Times mean nothing here.)
run 'bench_zero' "$bin/ddprun" --nproc-per-node 3 "$bin/bench_zero" --hidden 96,64 --rounds 2 --steps 2
for way in ddp whole scattered fused; do
    checks=$((checks + 1))
    grep -Eq "way=$way optimizer=adamw world_size=3 .* ratio=[0-9.]+ ratio_p25=[0-9.]+ ratio_p75=[0-9.]+ .* weights=equal$" \
        out.txt || fail "bench_zero, $way: $(cat out.txt)"
done

for other in '--comm-hook powersgd' --static-graph --no-gradient-as-bucket-view --cuda-graph; do
    # shellcheck disable=SC2086
    refuse 2 "--zero-optimizer cannot be combined with ${other%% *}" "$bin/train_ddp" \
        --zero-optimizer $other --device cpu
done
tally zero_optimizer
