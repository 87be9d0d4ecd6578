#!/bin/sh
# tutorial_less_to_send.sh BIN_DIR: steps 23 and 24 send the bytes and keep the accuracy that their pages state; step 23
# skips a step on all ranks or on none. Without error feedback, or with a check on each rank alone, they do not.
. "$(dirname "$0")/../programs/checks.sh"

ranks() { # RANKS PROGRAM ...
    count=$1
    shift
    "$bin/ddprun" --nproc-per-node "$count" "$@"
}
sends() { # BYTES: per step, in the last run
    grep -qE "^sent=$1( |$)" out.txt || fail "$what does not send $1 bytes: $(cat out.txt)"
}
accuracy() { sed -n 's/^test_accuracy=0[.]//p' out.txt; } # of the last run, in units of 0.0001
equal() { # replicas of the last run
    grep -q '^replicas: equal$' out.txt || fail "$what leaves different replicas: $(cat out.txt)"
}

# ---- the bits of step 9, and of the library's hook ---------------------------------------------------------
run 'step 9' ranks 3 "$bin/tutorial_09" --steps 30 --no-eval --save replicas
run 'f32' ranks 3 "$bin/tutorial_23" --steps 30 --no-eval --save f32
cmp replicas f32 || fail "step 23 with f32 has other weights than step 9"
run 'bf16' ranks 2 "$bin/tutorial_23" --steps 30 --no-eval --wire bf16 --save bf16
run 'the hook' ranks 2 "$bin/train_ddp" --device cpu --sampler blocked --steps 30 --no-eval --comm-hook bf16 --save hook
"$bin/compare_tensors" --bitwise bf16 hook >cmp.txt || fail "bf16 is not the library's hook: $(tail -n 1 cmp.txt)"

# ---- bytes and accuracy ------------------------------------------------------------------------------------
train() { run "$1" ranks 2 "$bin/tutorial_23" --epochs 4 --wire "$@"; }
train f32
sends 203304
all=$(accuracy)
train bf16
sends 101652
equal
[ $((all - $(accuracy))) -lt 200 ] || fail "bf16 costs accuracy: $all, $(accuracy)"
powersgd() { run 'PowerSGD' ranks 2 "$bin/tutorial_24" --epochs 4 "$@"; }
powersgd
sends 4944
equal
product=$(accuracy)
[ $((all - product)) -lt 1000 ] || fail "PowerSGD costs too much: $all, $product"
powersgd --break=no-feedback
[ "$(accuracy)" -lt $((product - 500)) ] || fail "without error feedback it is as good: $product, $(accuracy)"

# ---- fp16 --------------------------------------------------------------------------------------------------
train fp16 --scale 1 --no-eval
lost=$(sed -n 's/.*vanished=//p' out.txt)
train fp16 --scale 65536 --no-eval
equal
[ "$(sed -n 's/.*vanished=//p' out.txt)" -lt $((lost / 10)) ] || fail "the scale saves nothing: $lost, $(cat out.txt)"
run 'a joint decision' ranks 3 "$bin/tutorial_23" --steps 4 --no-eval --wire fp16 --scale 1.5e6
[ "$(grep -c 'skips step 0' out.txt)" = 3 ] || fail "not all ranks skip step 0: $(cat out.txt)"
equal
run 'a check of its own' ranks 3 "$bin/tutorial_23" --steps 1 --no-eval --wire fp16 --scale 1.5e6 --break=own-inf
[ "$(grep -c 'skips step 0' out.txt)" = 1 ] || fail "not one rank skips step 0: $(cat out.txt)"
! grep -q '^replicas: equal$' out.txt || fail "the replicas are equal: $(cat out.txt)"
tally tutorial_less_to_send
