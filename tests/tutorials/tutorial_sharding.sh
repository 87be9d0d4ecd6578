#!/bin/sh
# tutorial_sharding.sh BIN_DIR: step 20 ends with the weights of step 9 and of the library, bit for bit, for any number
# of ranks; its state has the size that its page states; each mistake shows the symptom on the page.
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
for count in 1 2 3 4 5; do
    for options in '--steps 20' "$adamw" '--steps 10 --model convnet --lr 0.02'; do
        run "step 9, $count" ranks $count "$bin/tutorial_09" $options --save replicas
        run "step 20, $count" ranks $count "$bin/tutorial_20" $options --save sharded
        cmp replicas sharded || fail "$options on $count ranks: other weights than step 9"
        says '^replicas: equal$'
    done
done
# shellcheck disable=SC2086
{
    run 'the library' ranks 3 "$bin/train_ddp" --device cpu --sampler blocked $adamw --zero-optimizer --save library
    run 'step 20' ranks 3 "$bin/tutorial_20" $adamw --save sharded
    run 'the same bits' "$bin/compare_tensors" --bitwise library sharded
    run 'four parts' ranks 4 "$bin/tutorial_20" $adamw
    [ "$(grep -c 'state_bytes=101656$' out.txt)" = 4 ] || fail "not four equal parts: $(cat out.txt)"
    run 'momentum' ranks 4 "$bin/tutorial_20" --steps 1
    says 'state_bytes=50828$'

    run 'no gather' ranks 2 "$bin/tutorial_20" $adamw --break=no-gather
    says '^replicas: DIFFERENT'
    run 'step 9' ranks 2 "$bin/tutorial_09" $adamw --save replicas
    run 'no sum' ranks 2 "$bin/tutorial_20" $adamw --break=no-sum --save wrong
    says '^replicas: equal$'
    ! cmp -s replicas wrong || fail "without the sum the weights are the same"
    run 'one rank has nothing to add up' ranks 1 "$bin/tutorial_20" $adamw --break=no-sum --save wrong
    run 'step 9' ranks 1 "$bin/tutorial_09" $adamw --save replicas
    cmp replicas wrong || fail "without the sum one rank has other weights"
    run 'a lost rest' ranks 4 "$bin/tutorial_20" $adamw --break=lost-rest --save wrong
    says 'weights 38118 to 50824 of 50826'
    run 'step 9' ranks 4 "$bin/tutorial_09" $adamw --save replicas
    ! cmp -s replicas wrong || fail "nothing was lost"
    run 'no rest' ranks 3 "$bin/tutorial_20" $adamw --break=lost-rest --save wrong
    run 'step 9' ranks 3 "$bin/tutorial_09" $adamw --save replicas
    cmp replicas wrong || fail "with 3 ranks something was lost"
}
tally tutorial_sharding
