#!/bin/sh
# tutorial_exact.sh BIN_DIR: steps 15 to 19 of the tutorial: the bits and numbers that their pages claim, and every
# mistake that they can make on purpose (--break=NAME), whose symptom is present with it and absent without.
. "$(dirname "$0")/../programs/checks.sh"

ranks() { # RANKS PROGRAM ...
    count=$1
    shift
    "$bin/ddprun" --nproc-per-node "$count" "$@"
}
says() { # 'REGULAR EXPRESSION': the last run printed such a line
    grep -qE -- "$1" out.txt || fail "no line \"$1\" from $what: $(cat out.txt)"
}
field() { sed -n "s/.*$1=\([-0-9.]*\).*/\1/p" out.txt | sed -n "${2}p"; } # field NAME LINE: from the last run

# bits A B: equal bits. differ A B, agree A B: weights differ by more than rounding, or do not.
bits() {
    checks=$((checks + 1))
    "$bin/compare_tensors" --bitwise "$1" "$2" >cmp.txt 2>&1 || fail "$1 and $2: $(tail -n 1 cmp.txt)"
}
differ() {
    checks=$((checks + 1))
    ! "$bin/compare_tensors" --tol 1e-3 "$1" "$2" >/dev/null 2>&1 || fail "$1 and $2 agree"
}
agree() {
    checks=$((checks + 1))
    "$bin/compare_tensors" --tol 1e-4 "$1" "$2" >cmp.txt 2>&1 || fail "$1 and $2: $(tail -n 1 cmp.txt)"
}

# ---- step 15: batch norm -----------------------------------------------------------------------------------
run 'batch norm in three ways' ranks 2 "$bin/tutorial_15_three_ways"
says '^one device rank 0: rows -1.34 -0.45  remembers mean 0.40, variance 1.57  continues with mean 0.40$'
says '^own rows +rank 1: rows -1.00  1.00  remembers mean 0.60, variance 1.10  continues with mean 0.20$'
grep '^one device' out.txt | sed 's/^one device/sync      /' >wanted.txt
grep '^sync' out.txt | cmp - wanted.txt || fail "sync is not one device: $(cat out.txt)"
conv="--model convnet --steps 20 --no-eval"
run 'one device' "$bin/tutorial_01" $conv --save one
for count in 2 4; do
    run 'own rows' ranks $count "$bin/tutorial_15" $conv --save own
    says '^collectives in a step: 15$'
    differ one own
    run 'the library, own rows' ranks $count "$bin/train_ddp" --device cpu --sampler blocked $conv --save library
    bits own library
    run 'sync' ranks $count "$bin/tutorial_15" $conv --save sync --batch-norm sync
    agree one sync
    run 'the library, sync' ranks $count "$bin/train_ddp" --device cpu --sampler blocked --sync-batch-norm $conv --save library
    bits sync library
done
run 'buffers' ranks 2 "$bin/tutorial_15" $conv
[ "$(field 'running_mean.0.' 1)" = "$(field 'running_mean.0.' 2)" ] || fail "buffers differ: $(cat out.txt)"
run 'no buffers' ranks 2 "$bin/tutorial_15" $conv --break=no-buffers
says '^replicas: equal$'
says '^collectives in a step: 9$'
[ "$(field 'running_mean.0.' 1)" != "$(field 'running_mean.0.' 2)" ] || fail "buffers are equal: $(cat out.txt)"

# ---- step 16: metrics --------------------------------------------------------------------------------------
tests() { # RANKS OPTION...: evaluates the same network each time
    count=$1
    shift
    run "an evaluation by $count" ranks "$count" "$bin/tutorial_16" --only-test --load-init one --model convnet "$@"
}
tests 1
grep -v '^rank' out.txt >alone.txt
run 'the library' "$bin/train_single" --device cpu --model convnet --evaluate one
[ "$(field accuracy 1)" = "$(printf %.4f "$(sed -n 's/.*accuracy=//p' alone.txt)")" ] || fail "the library has another accuracy: $(cat out.txt alone.txt)"
for count in 2 3 4 5; do
    tests $count
    grep -v 'rank ' out.txt | cmp - alone.txt || fail "$count ranks find something else: $(cat out.txt)"
done
tests 4 --break=rank-0-alone
grep -v 'rank ' out.txt | cmp - alone.txt || fail "rank 0 alone finds something else: $(cat out.txt)"
says 'rank 0 looks at 297 rows$'
says 'rank 3 looks at 0 rows$'
tests 3 --break=padded # no effect: 297 is a multiple of 3
grep -v 'rank ' out.txt | cmp - alone.txt || fail "three ranks need no padding: $(cat out.txt)"
for count in 4 5; do
    tests $count --break=padded
    says '^counted=300 '
done
tests 4 --break=mean-of-ranks
says '^counted=297 '
[ "$(field accuracy 1)" != "$(sed -n 's/.*accuracy=//p' alone.txt)" ] || fail "the mean of the ranks is the accuracy"
run 'training and evaluation' ranks 2 "$bin/tutorial_16" --steps 20 --save metrics
run 'step 9' ranks 2 "$bin/tutorial_09" --steps 20 --no-eval --save replicas
bits replicas metrics

# ---- step 17: checkpoints ----------------------------------------------------------------------------------
killed() { # COMMAND...: in which a rank must die
    checks=$((checks + 1))
    ! "$@" >out.txt 2>err.txt </dev/null || fail "no rank was killed: $*"
    grep -q 'rank 0 .* exited with status 137' err.txt || fail "rank 0 was not killed: $(cat err.txt)"
}
for options in '' '--optimizer adamw --lr 0.01' '--model convnet'; do
    for count in 1 2 3; do
        rm -f c c.new
        run 'a whole run' ranks $count "$bin/tutorial_17" --steps 40 --no-eval $options --save whole
        killed ranks $count "$bin/tutorial_17" --steps 40 --no-eval $options --checkpoint c --kill-at 30
        run 'and on' ranks $count "$bin/tutorial_17" --steps 40 --no-eval $options --checkpoint c --save parts
        says '^resumes at step=20$'
        cmp whole parts || fail "$count ranks $options: the killed run ends with other bits"
    done
done
run 'step 9' ranks 3 "$bin/tutorial_09" --steps 40 --no-eval --model convnet --save replicas
bits replicas whole
run 'the names of the bare model' "$bin/tutorial_01" --model convnet --steps 1 --no-eval --load-init whole # without "module."
rm -f c c.new
killed ranks 2 "$bin/tutorial_17" --steps 40 --no-eval --checkpoint c --kill-at 30 --break=in-place
refuse 1 'c is not a whole checkpoint' "$bin/tutorial_17" --steps 40 --no-eval --checkpoint c
run 'a whole run' ranks 2 "$bin/tutorial_17" --steps 40 --no-eval --save whole
for mistake in none no-momentum epoch-start momentum-on-rank-0; do
    rm -f c
    run 'a part' ranks 2 "$bin/tutorial_17" --steps 15 --no-eval --checkpoint c --schedule constant
    run 'a whole run' ranks 2 "$bin/tutorial_17" --steps 40 --no-eval --schedule constant --save whole
    run "$mistake" ranks 2 "$bin/tutorial_17" --steps 40 --no-eval --schedule constant --checkpoint c --break=$mistake --save parts
    case $mistake in
    none) bits whole parts && says '^replicas: equal$' ;;
    momentum-on-rank-0) differ whole parts && says '^replicas: DIFFERENT in 6' ;;
    *) differ whole parts && says '^replicas: equal$' ;;
    esac
done

# ---- step 18: accumulation and clipping --------------------------------------------------------------------
steps="--steps 20 --no-eval --schedule constant"
for count in 1 2 3 4; do
    run 'step 9' ranks $count "$bin/tutorial_09" $steps --save replicas
    run 'one micro-batch' ranks $count "$bin/tutorial_18" $steps --save single
    bits replicas single
    says '^collectives=140 '
    run 'four micro-batches' ranks $count "$bin/tutorial_18" $steps --micro-batches 4 --save four
    agree replicas four
    says '^collectives=140 '
    run 'every micro-batch' ranks $count "$bin/tutorial_18" $steps --micro-batches 4 --break=every --save every
    agree replicas every
    says '^collectives=500 '
    run 'mean of means' ranks $count "$bin/tutorial_18" $steps --micro-batches 4 --break=mean-of-means --save means
    says '^replicas: equal$'
    case $count in
    1 | 3) agree replicas means ;; # 60 and 20 rows make four equal micro-batches
    *) differ replicas means ;;    # 30 and 15 rows do not
    esac
    [ $count = 1 ] || run 'the first one' ranks $count "$bin/tutorial_18" $steps --micro-batches 4 --break=first
    [ $count = 1 ] || says '^replicas: DIFFERENT in 6'
    run 'clipping' ranks $count "$bin/tutorial_18" $steps --max-norm 0.1 --micro-batches 2 --save clip$count
    agree clip1 clip$count
    says '^replicas: equal$'
    for mistake in clip-first norm-twice; do
        run $mistake ranks $count "$bin/tutorial_18" $steps --max-norm 0.1 --break=$mistake --save wrong
        if [ $count = 1 ]; then agree clip1 wrong; else differ clip1 wrong; fi # on one rank the mistake has no effect
    done
done

# ---- step 19: uneven steps ---------------------------------------------------------------------------------
for count in 1 2 3 4; do
    run 'step 9' ranks $count "$bin/tutorial_09" $steps --save replicas
    run 'even ranks' ranks $count "$bin/tutorial_19" $steps --save uneven
    bits replicas uneven
    says '^collectives=161$'
    run 'unused parameters' ranks $count "$bin/tutorial_19_unused"
done
run 'unused parameters' ranks 2 "$bin/tutorial_19_unused"
says '^gradient of a +rank 0: 1.00   rank 1: 1.00$'
says '^b afterwards +rank 0: 0.56   rank 1: 0.56$'
refuse 1 'not used in producing loss' "$bin/tutorial_19_unused" --break=not-searched
for count in 2 3; do
    run 'uneven ranks' ranks $count "$bin/tutorial_19" $steps --uneven 5
    says '^replicas: equal$'
    says '^collectives=161$'
    run 'stale ranks' ranks $count "$bin/tutorial_19" $steps --uneven 5 --break=stale
    says '^replicas: DIFFERENT in 6'
    checks=$((checks + 1))
    ! ranks $count "$bin/tutorial_19" $steps --uneven 5 --break=no-join >out.txt 2>err.txt || fail "no error without join"
    grep -q 'ranks disagree' err.txt || fail "no word of the disagreement: $(cat err.txt)"
done
tally tutorial_exact
