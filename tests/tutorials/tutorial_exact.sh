#!/bin/sh
# tutorial_exact.sh BIN_DIR: steps 13 to 16 of the tutorial: what they promise of bits and numbers, and every mistake
# that they can make on purpose (--break=NAME): its symptom is there with it and gone without it.
. "$(dirname "$0")/../programs/checks.sh"

ranks() { # RANKS PROGRAM ...
    count=$1
    shift
    "$bin/ddprun" --nproc-per-node "$count" "$@"
}
says() { # 'regular expression': the last run printed such a line
    grep -qE -- "$1" out.txt || fail "no line \"$1\" from $what: $(cat out.txt)"
}
field() { sed -n "s/.*$1=\([-0-9.]*\).*/\1/p" out.txt | sed -n "${2}p"; } # field NAME LINE: of the last run

# bits A B: equal bits. differ A B, agree A B: by more than rounding, or not.
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

# ---- step 13: batch norm -----------------------------------------------------------------------------------
run 'batch norm in three ways' ranks 2 "$bin/tutorial_13_three_ways"
says '^one device rank 0: rows -1.34 -0.45  remembers 0.40  goes on with 0.40$'
says '^own rows +rank 1: rows -1.00  1.00  remembers 0.60  goes on with 0.20$'
grep '^one device' out.txt | sed 's/^one device/sync      /' >wanted.txt
grep '^sync' out.txt | cmp - wanted.txt || fail "sync is not one device: $(cat out.txt)"
conv="--model convnet --steps 20 --no-eval"
run 'one device' "$bin/tutorial_01" $conv --save one
for count in 2 4; do
    run 'own rows' ranks $count "$bin/tutorial_13" $conv --save own
    says '^collectives in a step: 15$'
    differ one own
    run 'the library, own rows' ranks $count "$bin/train_ddp" --device cpu --sampler blocked $conv --save library
    bits own library
    run 'sync' ranks $count "$bin/tutorial_13" $conv --save sync --batch-norm sync
    agree one sync
    run 'the library, sync' ranks $count "$bin/train_ddp" --device cpu --sampler blocked --sync-batch-norm $conv --save library
    bits sync library
done
run 'buffers' ranks 2 "$bin/tutorial_13" $conv
[ "$(field 'running_mean.0.' 1)" = "$(field 'running_mean.0.' 2)" ] || fail "buffers differ: $(cat out.txt)"
run 'no buffers' ranks 2 "$bin/tutorial_13" $conv --break=no-buffers
says '^replicas: equal$'
says '^collectives in a step: 9$'
[ "$(field 'running_mean.0.' 1)" != "$(field 'running_mean.0.' 2)" ] || fail "buffers are equal: $(cat out.txt)"
tally tutorial_exact
