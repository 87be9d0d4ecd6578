#!/bin/sh
# tutorial_bits.sh BIN_DIR: the tutorial's steps agree, bit for bit where their pages claim it.
. "$(dirname "$0")/../programs/checks.sh"

# steps_of COUNT: runs on two ranks or devices pass an epoch's end, which comes after 21 to 25 steps, others take 8 steps.
steps_of() { if [ "$1" = 2 ]; then steps=30; else steps=8; fi; }
steps_of 2

# train NAME COMMAND...: a short run, which saves its weights to NAME.
train() {
    name=$1
    shift
    run "$*" "$@" --steps $steps --no-eval --save "$name"
}

# equal A B: equal files, both written by tutorial programs.
equal() {
    checks=$((checks + 1))
    cmp "$1" "$2" || fail "$1 and $2 differ: $("$bin/compare_tensors" "$1" "$2" | tail -n 1)"
}

# tensors A B: equal bits of tensors; a trainer's file has further metadata.
tensors() {
    checks=$((checks + 1))
    "$bin/compare_tensors" --bitwise "$1" "$2" >cmp.txt 2>&1 || fail "$1 and $2: $(tail -n 1 cmp.txt)"
}

# close A B: different bits, but close values.
close() {
    checks=$((checks + 1))
    ! cmp -s "$1" "$2" || fail "$1 and $2 have the same bits, and the page says that they do not"
    "$bin/compare_tensors" --tol 1e-5 "$1" "$2" >cmp.txt 2>&1 || fail "$1 and $2: $(tail -n 1 cmp.txt)"
}

# Step 1 equals train_single, and one shard equals step 1.
for options in '' '--model convnet' '--optimizer adamw --lr 0.01 --schedule constant' '--model toy --global-batch 50'; do
    train one "$bin/tutorial_01" $options
    train single "$bin/train_single" --device cpu $options
    tensors one single
    train shard "$bin/tutorial_02" --shards 1 $options
    equal one shard
done

# Two to five shards, equal and unequal, and a short last batch (1,500 = 21 * 70 + 30).
for shards in 2 3 4 5 7; do
    train one "$bin/tutorial_01" --global-batch 70
    train two "$bin/tutorial_02" --global-batch 70 --shards $shards
    close one two
done
# Steps 2, 3 and 5 add in the same order as the library's DataParallel.
for options in '' '--model convnet --lr 0.02' '--optimizer adamw --lr 0.01'; do
    for count in 1 2 3 5; do
        steps_of $count
        options="$options --global-batch 64"
        train two "$bin/tutorial_02" --shards $count $options
        train three "$bin/tutorial_03" --shards $count $options
        train backward "$bin/tutorial_05" --devices $count $options
        train costs "$bin/tutorial_06" --devices $count $options
        train dp "$bin/train_dp" --device cpu --devices $count $options
        case $options in *convnet*) ;; *) equal two three ;; esac # in step 2 every shard updates the running statistics
        equal three backward
        equal backward costs
        tensors backward dp
    done
done
steps_of 2
# Processes that each compute everything, and processes that share the work by messages: any number of ranks, any
# shares.
for options in '' '--global-batch 7 --steps 9'; do # 7 rows on 4 ranks are 2, 2, 2, 1; on 5 ranks one has no rows
    for count in 1 2 3 4 5; do
        train two "$bin/tutorial_02" --shards $count $options
        train collectives "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_08" $options
        equal two collectives
        [ $count -le 2 ] || continue
        train one "$bin/tutorial_01" $options
        train processes "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_07" $options
        equal one processes
    done
done
# Replicas: equal bits if the division by the number of ranks is exact, else equal within rounding; always the bits of
# the library's DistributedDataParallel, which averages in the same way.
for count in 1 2 3 4; do
    steps_of $count
    train collectives "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_08"
    train replicas "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_09"
    train average "$bin/ddprun" --nproc-per-node $count "$bin/train_ddp" --device cpu --sampler blocked
    train global "$bin/ddprun" --nproc-per-node $count "$bin/train_ddp" --device cpu --sampler blocked --normalize global
    tensors replicas average
    tensors collectives global
    if [ $count = 3 ]; then close collectives replicas; else equal collectives replicas; fi
done
steps_of 2
for options in '--model convnet --lr 0.02' '--optimizer adamw --lr 0.01'; do
    train replicas "$bin/ddprun" --nproc-per-node 2 "$bin/tutorial_09" $options
    train average "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --device cpu --sampler blocked $options
    tensors replicas average
done
# The interleaved sampler assigns other rows to the ranks; the blocked one restores step 9's bits.
for count in 1 2 3; do
    steps_of $count
    for options in '' '--model convnet --lr 0.02'; do
        train replicas "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_09" $options
        train blocked "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_10" --sampler blocked $options
        train sampler "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_10" $options
        train ddp "$bin/ddprun" --nproc-per-node $count "$bin/train_ddp" --device cpu $options
        equal replicas blocked
        tensors sampler ddp
        [ -z "$options" ] || continue
        if [ $count = 1 ]; then equal replicas sampler; else close replicas sampler; fi
    done
done
# An explicit learning rate, buckets of any size, reduced after backward or during it: step 10's bits.
for count in 1 2 3; do
    steps_of $count
    for options in '' '--model convnet --lr 0.02'; do
        train sampler "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_10" $options
        train rate "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_11" $options
        equal sampler rate
        for bytes in 0 1000 4096 1000000; do
            train buckets "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_12" --bucket-bytes $bytes $options
            equal sampler buckets
            train overlap "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_13" --bucket-bytes $bytes $options
            equal sampler overlap
        done
    done
done
# The ring adds in another order from three ranks on; then the bucket size changes bits, too.
for options in '' '--model convnet --lr 0.02'; do
    for count in 1 2 3 5; do
        steps_of $count
        options="$options --global-batch 60"
        train buckets "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_12" $options
        train ring "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_14" $options
        train each "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_14" --bucket-bytes 0 $options
        if [ $count -le 2 ]; then
            equal buckets ring
            equal ring each
        else
            close buckets ring
            close ring each
        fi
    done
done
tally tutorial_bits
