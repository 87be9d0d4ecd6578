#!/bin/sh
# fsdp.sh BIN_DIR: train_fsdp as a user sees it: its checkpoints, which every program resumes on any number of ranks;
# evaluation, gradients, initial weights and text; 1.5 times DDP's bytes; and messages about a dead rank, a silent rank,
# and unsupported combinations. (random_fsdp.py compares many runs with train_ddp's.)
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"

# train PROGRAM RANKS FILE OPTION...
train() {
    program=$1 ranks=$2 file=$3
    shift 3
    run "$file" "$bin/ddprun" --nproc-per-node "$ranks" "$bin/$program" --lr 0.003 --steps 8 --save "$file" "$@"
}
gpt="--model gpt --layers 2 --heads 2 --embedding 32 --context 16 --global-batch 6 --optimizer adamw"
tested() { grep -o 'test_loss=.*' out.txt; }

# --- Files

# shellcheck disable=SC2086 # the options are words
{
    train train_ddp 3 ddp $gpt --save-init ddp.first --dump-grads ddp.grads --dump-step 2 --sample 12
    sed -n '/^sample/,$p' out.txt >ddp.text
    tested >ddp.tested
    train train_fsdp 3 fsdp $gpt --save-init fsdp.first --dump-grads fsdp.grads --dump-step 2 --sample 12
    sed -n '/^sample/,$p' out.txt >fsdp.text
    tested >fsdp.tested
    same ddp fsdp
    for what in first grads; do run "the $what" "$bin/compare_tensors" --bitwise "ddp.$what" "fsdp.$what"; done
    checks=$((checks + 2))
    [ -s ddp.text ] && cmp -s ddp.text fsdp.text || fail "the texts differ: $(diff ddp.text fsdp.text)"
    [ -s ddp.tested ] && cmp -s ddp.tested fsdp.tested || fail "tested: $(cat ddp.tested fsdp.tested)"

    # With gathers in flight between steps, during evaluation and checkpoints.
    train train_fsdp 3 early $gpt --unshard-in-step --save-every 3
    same ddp early

    # Steps 8 to 12 on two ranks, resumed from a checkpoint of either program.
    for from in ddp fsdp; do
        for program in train_ddp train_fsdp; do
            train $program 2 "$program.$from" $gpt --steps 12 --resume $from
        done
    done
    same train_ddp.ddp train_fsdp.ddp
    same train_ddp.ddp train_ddp.fsdp
    same train_ddp.ddp train_fsdp.fsdp
    run "one device resumes" "$bin/train_single" $gpt --steps 9 --resume fsdp --save single
    run "evaluate" "$bin/ddprun" --nproc-per-node 2 "$bin/train_fsdp" $gpt --evaluate fsdp
    checks=$((checks + 1))
    [ "$(tested)" = "$(cat fsdp.tested)" ] || fail "--evaluate: $(cat out.txt), not $(cat fsdp.tested)"

    # --- Bytes: two gathers and a reduction, each (W - 1) / W of the weights; DDP's all-reduce is twice that.
    for program in train_ddp train_fsdp 'train_fsdp --no-reshard-after-forward' 'train_fsdp --amp bf16'; do
        run "$program" "$bin/ddprun" --nproc-per-node 2 "$bin/"$program $gpt --embedding 64 --steps 40 --no-eval --out out # saves one checkpoint
        sed -n 's/.*"moved_bytes_per_step": *\([0-9]*\).*/\1/p' out/summary.json >>moved.txt
    done
}
checks=$((checks + 1))
paste -sd ' ' moved.txt | awk '{ exit !($2 / $1 > 1.4 && $2 / $1 < 1.55 && $3 / $1 > 0.95 && $3 / $1 < 1.05) }' ||
    fail "bytes moved by DDP, by fully_shard, without reshard: $(paste -sd ' ' moved.txt)"
# In 16 bits, two gathers transfer half of the bytes of the blocks' products; the embedding, which the head shares,
# stays in float32.
checks=$((checks + 1))
paste -sd ' ' moved.txt | awk '{ off = $2 - $4 - 2 * 2 * 2 * 12 * 64 * 64; exit !(off < 1 && off > -1) }' ||
    fail "bytes moved by fully_shard, in bf16: $(paste -sd ' ' moved.txt)"

# --- Units: each layer with parameters of its own, each block, or the root alone. Each of two ranks gathers half of a
# unit.
units() { # --units, UNIT BYTES...
    run "--units $1" "$bin/ddprun" --nproc-per-node 2 "$bin/train_fsdp" --model gpt --layers 1 --heads 2 --embedding 32 --context 16 \
        --global-batch 4 --units "$1" --steps 1 --no-eval --trace trace.json
    found=$(grep -o '"all_gather", "pid": 0.*"bucket": [0-9]*, "bytes": [0-9]*' trace.json |
        sed 's/.*"bucket": \([0-9]*\), "bytes": \([0-9]*\)/\1 \2/' | sort -nu | paste -sd ' ')
    [ "$found" = "$2" ] || fail "--units $1 gathers $found"
}
norm=$((2 * 32 * 4 / 2)) embeddings=$(((74 + 16) * 32 * 4 / 2)) block=$(((12 * 32 * 32 + 13 * 32) * 4 / 2))
units layers "0 $norm 1 $((33 * 96 * 4 / 2)) 2 $((33 * 32 * 4 / 2)) 3 $norm 4 $((33 * 128 * 4 / 2)) 5 $((129 * 32 * 4 / 2)) 6 $norm 7 $embeddings"
units blocks "0 $block 1 $((norm + embeddings))"
units root "0 $((block + norm + embeddings))"

# --- fp16: all ranks skip a step if one rank finds an overflow in its shard

for program in train_ddp train_fsdp; do
    train $program 3 $program.fp16 --model convnet --global-batch 12 --amp fp16 --clip-grad-norm 1 --out $program.half
    tested >$program.tested
done
same train_ddp.fp16 train_fsdp.fp16
checks=$((checks + 2)) # all ranks evaluate with rank 0's running statistics
[ -s train_ddp.tested ] && cmp -s train_ddp.tested train_fsdp.tested || fail "tested: $(cat train_ddp.tested train_fsdp.tested)"
skipped=$(sed -n 's/.*"skipped_steps": *\([0-9]*\).*/\1/p' train_fsdp.half/summary.json)
[ "$skipped" -gt 0 ] && [ "$skipped" -lt 8 ] || fail "fp16 skipped $skipped of 8 steps"

# --- Pictures: computed by all ranks, written by rank 0

run "pictures" "$bin/ddprun" --nproc-per-node 2 "$bin/train_fsdp" --model segnet --data shapes:8x8@20 --global-batch 4 \
    --epochs 1 --out segnet --dump-images 1
checks=$((checks + 1))
[ "$(ls segnet/images | wc -l)" -gt 0 ] || fail "no pictures"

# --- Faults

# A rank that dies, or is stopped, in step 3: the other ranks end and name it.
lost() { # SIGNAL 'MESSAGE ON THE CONSOLE'
    checks=$((checks + 1))
    status=0
    # shellcheck disable=SC2016 # the ranks expand it
    timeout 60 "$bin/ddprun" --nproc-per-node 3 sh -c '"$0" --steps 100000 --no-eval --timeout-s 3 --model mlp & child=$!
        [ "$RANK" = 1 ] && sleep 1 && kill -'"$1"' $child; wait $child' "$bin/train_fsdp" >out.txt 2>err.txt || status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] || fail "$1: status $status"
    grep -q "$2" err.txt || fail "$1: no \"$2\" in $(cat err.txt)"
}
lost KILL 'rank 1'
lost STOP 'rank 1'

# A loss that is not finite ends both programs in the same step, also if the gradients' norm is not finite.
for clip in 0 1; do
    for program in train_ddp train_fsdp; do
        status=0
        "$bin/ddprun" --nproc-per-node 2 "$bin/$program" --model mlp --lr 1000000 --steps 60 --no-eval --clip-grad-norm $clip \
            >out.txt 2>err.txt || status=$?
        echo "$status $(grep -m 1 -o 'the loss is .*' err.txt)" >"$program.ends"
    done
    checks=$((checks + 1))
    grep -q '^1 .*nan at step [0-9]* .*training has diverged' train_ddp.ends && cmp -s train_ddp.ends train_fsdp.ends ||
        fail "diverged: $(cat train_ddp.ends train_fsdp.ends)"
done

# --- Unsupported combinations

one() { "$bin/train_fsdp" --steps 2 --no-eval "$@"; }
refuse 2 '--sync-batch-norm has no effect: the model has no batch norm' one --sync-batch-norm
refuse 2 '--unshard-in-step has no effect: --no-overlap' one --unshard-in-step --no-overlap
refuse 2 'unknown option --zero-optimizer' one --zero-optimizer
refuse 2 'unknown option --bucket-cap-mb' one --bucket-cap-mb 1
refuse 2 'ddp.first: holds another model' one --load-init ddp.first
run "a world of one" one --model mlp

tally fsdp
