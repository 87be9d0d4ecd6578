#!/bin/sh
# tutorial_fully_sharded.sh BIN_DIR: step 18 has the weights of step 8 and of the library, bit for bit, for any number of
# ranks and layers of a unit; a rank keeps and moves as much as its page says; and each mistake shows as the page says.
. "$(dirname "$0")/../programs/checks.sh"

ranks() { # RANKS PROGRAM ...
    count=$1
    shift
    "$bin/ddprun" --nproc-per-node "$count" "$@" --no-eval
}
says() { # 'regular expression': the last run printed such a line
    grep -qE -- "$1" out.txt || fail "no line \"$1\" from $what: $(cat out.txt)"
}
adamw="--steps 20 --optimizer adamw --lr 0.01"

# shellcheck disable=SC2086 # the options are words
for count in 1 2 3 5; do
    for options in "$adamw" '--steps 10 --model convnet --lr 0.02'; do
        run "step 8, $count" ranks $count "$bin/tutorial_08" $options --save eight
        for step in 18; do
            run "step $step, $count" ranks $count "$bin/tutorial_$step" $options --save sharded
            cmp eight sharded || fail "$options on $count ranks: step $step has other weights than step 8"
            says '^replicas: equal$'
            run "step $step, two layers, $count" ranks $count "$bin/tutorial_$step" $options --unit-layers 2 --save sharded
            cmp eight sharded || fail "$options on $count ranks: step $step has other weights with larger units"
        done
    done
done
# shellcheck disable=SC2086
{
    run 'the library' ranks 3 "$bin/train_fsdp" --device cpu --sampler blocked --units layers $adamw --save library
    for step in 18; do
        run "step $step" ranks 3 "$bin/tutorial_$step" $adamw --save sharded
        run 'the same bits' "$bin/compare_tensors" --bitwise library sharded
    done
    run 'four parts' ranks 4 "$bin/tutorial_18" $adamw
    says 'keeps 203360 bytes, and at most 263168 more within a step; a step moves 457476$'
    run 'one unit' ranks 4 "$bin/tutorial_18" $adamw --unit-layers 9
    says 'at most 406624 more within a step'
    run 'kept' ranks 4 "$bin/tutorial_18" $adamw --break=kept --save kept
    says 'at most 329728 more within a step; a step moves 304992$'
    run 'step 8' ranks 4 "$bin/tutorial_08" $adamw --save eight
    cmp eight kept || fail "kept weights are other ones"
    for mistake in no-sum first-forgotten; do
        run "$mistake" ranks 4 "$bin/tutorial_18" $adamw --break=$mistake --save wrong
        says '^replicas: equal$'
        ! cmp -s eight wrong || fail "$mistake makes no difference"
    done
    checks=$((checks + 1))
    ! "$bin/tutorial_18" --model gpt --data text --steps 1 >out.txt 2>&1 && says 'is no row of layers' || fail "a gpt is cut"
}
tally tutorial_fully_sharded
