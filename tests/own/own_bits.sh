#!/bin/sh
# own_bits.sh BIN_DIR FILES: training with a user's wrapper or all-reduce (train_dp --wrapper, train_ddp --wrapper and
# --all-reduce, train_fsdp --wrapper) is bit-identical to training with the built-in one, for every correct file of
# FILES: several models, numbers of ranks and bucket sizes, accumulation, a batch that no number of ranks divides,
# checkpoints and --out.
files=$2
. "$(dirname "$0")/../programs/checks.sh"
mkdir tmp
TMPDIR=$work/tmp # so that a file left there is one of this test
export TMPDIR
# The trainers compile a source file without optimization, compile() with it: both give the same bits.
PATH=$bin:$files:$PATH CC=quick_cc QUICK_CC_KEPT=$work
export CC QUICK_CC_KEPT
common="--log-every 100 --seed 3"

# results DIR: prints a run's losses and accuracies, its generated text (out.txt) and its pictures
results() {
    grep -E '"(final|test|best)_' "$1/summary.json"
    sed -n '/sample tokens=/,$p' out.txt
    [ ! -d "$1/images" ] || (cd "$1/images" && cksum ./*)
}

# compile FILE: compiles a source file once to a shared object; a trainer would compile it in each run.
compile() {
    cc -std=gnu11 -O2 -fPIC -shared -ffp-contract=off -I"$bin/../include" -I"$bin/../include/ddpc" -o "$work/${1%.c}.so" "$files/$1" -lm
}

# pair NAME OPTION COMMAND...: runs the command twice, the second time with OPTION "$file": equal weights, optimizer
# state, gradients of the first step and results. The first pair of a file passes its source, the others its shared
# object.
pair() {
    name=$1 option=$2
    shift 2
    rm -rf a.d b.d a.dump b.dump
    own=$work/${file%.c}.so
    [ -e "$own" ] || own=$files/$file
    run "$name" "$@" $common --save a --out a.d --dump-grads a.dump
    results a.d >a.results
    run "$name, $file" "$@" $common --save b --out b.d --dump-grads b.dump "$option" "$own"
    [ "$own" = "$work/${file%.c}.so" ] || [ "$file" = mine.so ] || compile "$file"
    same a b
    checks=$((checks + 3))
    "$bin/compare_tensors" --bitwise a.dump b.dump >cmp.txt 2>&1 || fail "$name, $file: the gradients: $(tail -n 1 cmp.txt)"
    results b.d | diff a.results - >diff.txt || fail "$name, $file: other results: $(cat diff.txt)"
    grep -q 'bits: not promised against .*the user.s own' err.txt ||
        fail "$file does not say that bits are not promised: $(cat err.txt)"
}
# The same with one rank and without the comparison of bits.
pair_of_one() {
    run "$1" train_ddp $common --steps 4 --global-batch 8 --save a
    run "$1, $file" train_ddp $common --steps 4 --global-batch 8 --save b "$2" "$files/$file"
    same a b
}

ranks() { ddprun --nproc-per-node "$@"; }
for file in ddp_overlap.c ddp_in_place.c ddp_naive.c; do
    pair_of_one 'one rank' --wrapper
    pair 'mlp' --wrapper ranks 2 train_ddp --steps 4 --global-batch 12 --bucket-cap-mb 0.05
    pair 'convnet, uneven, accumulated' --wrapper ranks 3 train_ddp --model convnet --steps 3 --global-batch 13 \
        --accumulate-steps 2 --bucket-cap-mb 0.01 --normalize global --sampler blocked --no-eval
    pair 'gpt' --wrapper ranks 2 train_ddp --model gpt --steps 2 --global-batch 4 --bucket-cap-mb 0.1 --no-eval
done
file=ddp_overlap.c
pair 'resnet20, batch norm' --wrapper ranks 2 train_ddp --model resnet20 --steps 2 --global-batch 6 --no-eval
pair 'blocked, every gradient alone' --wrapper ranks 3 train_ddp --steps 3 --global-batch 12 --sampler blocked \
    --bucket-cap-mb 0 --no-eval
for file in dp_one_node.c dp_packed.c; do
    pair 'mlp' --wrapper train_dp --steps 4 --global-batch 13
    pair 'convnet' --wrapper train_dp --devices 3 --model convnet --steps 3 --global-batch 7 --accumulate-steps 2
    pair 'gpt' --wrapper train_dp --devices 3 --model gpt --steps 2 --global-batch 4 --no-eval
    pair 'idle devices' --wrapper train_dp --devices 4 --steps 2 --global-batch 5 --no-eval
done
file=dp_one_node.c
pair 'resnet20, batch norm' --wrapper train_dp --devices 2 --model resnet20 --steps 2 --global-batch 6 --no-eval

file=fsdp_tensors.c
pair 'mlp' --wrapper ranks 3 train_fsdp --steps 4 --global-batch 12
pair 'convnet, uneven, accumulated' --wrapper ranks 3 train_fsdp --model convnet --units layers --steps 3 --global-batch 13 \
    --accumulate-steps 2 --normalize global --sampler blocked --no-eval
pair 'gpt, clipped' --wrapper ranks 4 train_fsdp --model gpt --steps 2 --global-batch 4 --clip-grad-norm 0.1 --no-eval --sample 12
grep -q 'sample tokens=12' out.txt || fail 'a gpt generates no text'
pair 'gpt, a head of the embedding' --wrapper ranks 2 train_fsdp --model gpt --layers 1 --units layers --steps 2 --global-batch 4 --no-eval
pair 'segnet, pictures' --wrapper ranks 3 train_fsdp --model segnet --data shapes:16x16@40 --steps 4 --global-batch 6 --dump-images 1
[ -d b.d/images ] || fail 'segnet draws no pictures'
pair 'resnet20, batch norm' --wrapper ranks 2 train_fsdp --model resnet20 --steps 2 --global-batch 6
pair 'resnet20, SyncBatchNorm, accumulated' --wrapper ranks 2 train_fsdp --model resnet20 --sync-batch-norm --steps 2 \
    --global-batch 8 --accumulate-steps 2 --no-eval
pair 'only a root' --wrapper ranks 2 train_fsdp --units root --steps 2 --no-eval
pair 'rank 0 evaluates a batch more' --wrapper ranks 2 train_fsdp --model toy --data synthetic:10:5@2052 --steps 2

# An all-reduce that adds in rank order has the bits of the built-in one. A ring's sums differ from them by roundings,
# equally on all ranks.
for file in sum_naive.c sum_chain.c sum_direct.c; do
    pair 'mlp' --all-reduce ranks 3 train_ddp --steps 4 --global-batch 12 --bucket-cap-mb 0.05
    pair 'convnet' --all-reduce ranks 2 train_ddp --model convnet --steps 3 --global-batch 8 --no-eval
done
file=sum_ring.c
pair 'two ranks' --all-reduce ranks 2 train_ddp --steps 4 --global-batch 12 --bucket-cap-mb 0.05
for ranks in 3 4 5; do
    run 'the built-in sum' ranks $ranks train_ddp $common --steps 4 --global-batch 60 --no-eval --save a
    run 'a ring' ranks $ranks train_ddp $common --steps 4 --global-batch 60 --no-eval --save b --all-reduce "$files/$file"
    run "a ring of $ranks" compare_tensors --tol 1e-6 a b
done

# A shared object is loaded without a compiler.
file=ddp_overlap.c
mv ddp_overlap.so mine.so
files=$work file=mine.so
CC=there-is-none pair 'a shared object' --wrapper ranks 2 train_ddp --steps 2 --no-eval

# A checkpoint of one wrapper continues with the other.
run 'all steps' ranks 2 train_ddp $common --steps 6 --no-eval --save a
run 'the first' ranks 2 train_ddp $common --steps 3 --no-eval --save b --wrapper mine.so
run 'the rest' ranks 2 train_ddp $common --steps 6 --no-eval --resume b --save b
checks=$((checks + 1))
[ -z "$(ls -A tmp)" ] || fail "compiled files are left in $TMPDIR: $(ls tmp)"
tally own_bits
