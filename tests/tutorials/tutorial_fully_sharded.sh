#!/bin/sh
# tutorial_fully_sharded.sh BIN_DIR: steps 21 and 22 end with the weights of step 9 and of the library, bit for bit, for
# any number of ranks and any number of layers per unit; a rank stores and transfers the bytes that their pages state;
# each mistake shows in these numbers.
. "$(dirname "$0")/../programs/checks.sh"

ranks() { # RANKS PROGRAM ...
    count=$1
    shift
    "$bin/ddprun" --nproc-per-node "$count" "$@" --no-eval
}
says() { # 'REGULAR EXPRESSION': the last run printed such a line
    grep -qE -- "$1" out.txt || fail "no line \"$1\" from $what: $(cat out.txt)"
}
adamw="--steps 20 --optimizer adamw --lr 0.01"

# shellcheck disable=SC2086 # the options are words
for count in 1 2 3 5; do
    for options in "$adamw" '--steps 10 --model convnet --lr 0.02'; do
        run "step 9, $count" ranks $count "$bin/tutorial_09" $options --save replicas
        for step in 21 22; do
            run "step $step, $count" ranks $count "$bin/tutorial_$step" $options --save sharded
            cmp replicas sharded || fail "$options on $count ranks: step $step has other weights than step 9"
            says '^replicas: equal$'
            run "step $step, two layers, $count" ranks $count "$bin/tutorial_$step" $options --unit-layers 2 --save sharded
            cmp replicas sharded || fail "$options on $count ranks: step $step has other weights with larger units"
        done
    done
done
# shellcheck disable=SC2086
{
    run 'the library' ranks 3 "$bin/train_fsdp" --device cpu --sampler blocked --units layers $adamw --save library
    for step in 21 22; do
        run "step $step" ranks 3 "$bin/tutorial_$step" $adamw --save sharded
        run 'the same bits' "$bin/compare_tensors" --bitwise library sharded
    done
    run 'four parts' ranks 4 "$bin/tutorial_21" $adamw
    says 'keeps 203360 bytes, and at most 263168 more within a step; a step moves 457476$'
    run 'one ahead' ranks 4 "$bin/tutorial_22" $adamw
    says 'keeps 203360 bytes, and at most 334896 more within a step; a step moves 453600$'
    run 'one unit' ranks 4 "$bin/tutorial_21" $adamw --unit-layers 9
    says 'at most 406624 more within a step'
    run 'kept' ranks 4 "$bin/tutorial_21" $adamw --break=kept --save kept
    says 'at most 329728 more within a step; a step moves 304992$'
    run 'step 9' ranks 4 "$bin/tutorial_09" $adamw --save replicas
    cmp replicas kept || fail "kept weights are other ones"
    for mistake in no-sum first-forgotten; do
        run "$mistake" ranks 4 "$bin/tutorial_21" $adamw --break=$mistake --save wrong
        says '^replicas: equal$'
        ! cmp -s replicas wrong || fail "$mistake makes no difference"
    done
    # The order of events: the next unit, and no other, is allocated before this one computes.
    run 'the order' ranks 2 "$bin/tutorial_22" --steps 1 --show
    [ "$(grep -E '^\+ fc. weights|computes' out.txt | head -n 8 | awk '{ printf "%s%s ", $1, $2 }')" = \
        '+fc1 +fc2 fc1computes +fc3 fc2computes fc3computes +fc2 +fc1 ' ] || fail "another order: $(cat out.txt)"
    six="--steps 5 --hidden 128,128,128,128,128"
    run 'one ahead' ranks 4 "$bin/tutorial_22" $six
    says 'at most 264192 more'
    run 'all at once' ranks 4 "$bin/tutorial_22" $six --break=all-at-once
    says 'at most 368688 more'
    run 'none ahead' ranks 4 "$bin/tutorial_22" $adamw --break=no-overlap --save late
    says 'at most 263168 more'
    cmp replicas late || fail "without overlap there are other weights"
    checks=$((checks + 1))
    ! ranks 3 "$bin/tutorial_22" --steps 1 --break=own-order >out.txt 2>&1 && says 'ranks disagree' || fail "any order passes"
    checks=$((checks + 1))
    ! "$bin/tutorial_21" --model gpt --data text --steps 1 >out.txt 2>&1 && says 'is no row of layers' || fail "a gpt is cut"
}
tally tutorial_fully_sharded
