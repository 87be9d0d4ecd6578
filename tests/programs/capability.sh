#!/bin/sh
# capability.sh BIN_DIR: GPUs of other compute capabilities, on the emulator. A Turing card (T4, 7.5) trains in float32
# and fp16 with a Hopper's losses, and refuses bfloat16 and TF32 by name; an older card is refused, and --device auto
# falls back to the CPU with the reason. Inexact tensor core attention is not used.
. "$(dirname "$0")/checks.sh"

# losses CAPABILITY OPTION...: writes the losses of three steps on a card of this capability.
losses() {
    capability=$1
    shift
    run "$capability $*" env DDPC_EMULATED_CAPABILITY="$capability" "$bin/train_single" --device cuda --steps 3 \
        --log-every 1 --no-eval "$@"
    sed -n 's/.* loss=\([0-9.]*\) .*/\1/p' out.txt >"$capability.txt"
    [ "$(wc -l <"$capability.txt")" = 3 ] || fail "$capability $*: not three losses: $(cat out.txt)"
}

for options in "" "--amp fp16" "--model convnet" "--model convnet --amp fp16"; do
    # shellcheck disable=SC2086 # options are words
    losses 75 $options && losses 90 $options
    cmp -s 75.txt 90.txt || fail "other losses at 7.5 with '$options': $(cat 75.txt 90.txt)"
done
losses 80 --amp bf16

# Inexact attention on tensor cores is refused, with one line.
for sound in 1 0; do
    run "tensor cores $sound" env DDPC_EMULATED_CAPABILITY=90 DDPC_EMULATED_TENSOR_CORES=$sound "$bin/train_single" --device cuda --model gpt --amp bf16 \
        --global-batch 2 --steps 2 --no-eval
    [ "$(grep -c 'note: cuda:0: attention on tensor cores is off for heads of ' err.txt)" = $((1 - sound)) ] ||
        fail "tensor cores $sound: $(cat err.txt)"
done

# If the trial of one rank fails, all ranks use the exact kernels, and rank 0 notes it once: the same bits as if all
# trials had failed.
one_attention='note: attention on tensor cores is off for heads of 32: that of'
ranks() { # PROGRAM BAD: trains on two ranks; ranks in BAD have inexact tensor cores.
    run "$1, bad: $2" env DDPC_EMULATED_CAPABILITY=90 DDPC_EMULATED_GPUS=2 "$bin/ddprun" --nproc-per-node 2 sh -c '
        case " $1 " in *" $RANK "*) export DDPC_EMULATED_TENSOR_CORES=0 ;; esac
        shift && exec "$@"' sh "$2" "$bin/$1" --device cuda --model gpt --layers 1 --heads 1 --embedding 32 \
        --context 48 --amp fp16 --global-batch 2 --steps 2 --no-eval --save model.safetensors
    mv model.safetensors "$1 $2.safetensors"
}
for program in train_ddp train_fsdp; do
    for bad in "0 1" 1 ""; do
        ranks $program "$bad"
        [ "$(grep -c "$one_attention rank ${bad%% *}" err.txt)" = $((${#bad} > 0)) ] || fail "$program, bad: $bad: $(cat err.txt)"
    done
    cmp -s "$program 0 1.safetensors" "$program 1.safetensors" || fail "$program: one rank's refusal is not that of all"
    ! cmp -s "$program 1.safetensors" "$program .safetensors" || fail "$program: both kinds of attention have the same bits"
done
run "devices" env DDPC_EMULATED_CAPABILITY=90 DDPC_EMULATED_GPUS=2 DDPC_EMULATED_TENSOR_CORES=0 "$bin/train_dp" \
    --devices 2 --device cuda --model gpt --layers 1 --heads 1 --embedding 32 --amp bf16 --global-batch 2 --steps 1 --no-eval
[ "$(grep -c "$one_attention device 0" err.txt)" = 1 ] && [ "$(grep -c 'tensor cores' err.txt)" = 1 ] ||
    fail "devices do not choose once: $(cat err.txt)"

export DDPC_EMULATED_CAPABILITY=75
for option in "--amp bf16" --tf32; do
    # shellcheck disable=SC2086
    refuse 2 "$option: cuda:0 has compute capability 7.5, and it needs 8.0" \
        "$bin/train_single" --device cuda $option --steps 1 --no-eval
done
export DDPC_EMULATED_CAPABILITY=70
refuse 77 "the GPU has compute capability 7.0, and 7.5 is the least" \
    "$bin/train_single" --device cuda --steps 1 --no-eval
run "auto at 7.0" "$bin/train_single" --device auto --steps 1 --no-eval
grep -qxF "the GPU has compute capability 7.0, and 7.5 is the least: on the CPU" err.txt ||
    fail "--device auto does not say why it computes on the CPU: $(cat err.txt)"
tally capability
