#!/bin/sh
# train_dp_cuda.sh BIN_DIR: train_dp on GPUs: equal weights on one card and on two, close to those on CPU devices; both
# also in 16 bits; its records; its message if a GPU does not exist. Ends with 77 without a GPU.
. "$(dirname "$0")/checks.sh"

# run NAME OPTION...: trains the convnet for some steps, with its records in folder NAME.
run() {
    name=$1
    shift
    checks=$((checks + 1))
    "$bin/train_dp" --model convnet --data synthetic:1x8x8:10@150 --global-batch 50 --steps 5 \
        --schedule constant --log-every 1 --out "$name" "$@" >"$name.txt" 2>"$name.err" ||
        fail "$*: $(cat "$name.err")"
}

# compare OPTION A B: compares the weights of two runs.
compare() {
    checks=$((checks + 1))
    "$bin/compare_tensors" $1 "$2/last.safetensors" "$3/last.safetensors" >cmp.txt 2>&1 ||
        fail "the weights of $2 and $3: $(tail -n 1 cmp.txt)"
}

value() { sed -n "s/.*\"$2\": *\([^,}]*\).*/\1/p" "$1/summary.json"; }

equal() { # KEY A B: the same value, not zero, in both runs' records
    checks=$((checks + 1))
    [ -n "$(value "$2" "$1")" ] && [ "$(value "$2" "$1")" != 0 ] &&
        [ "$(value "$2" "$1")" = "$(value "$3" "$1")" ] ||
        fail "$1 is '$(value "$2" "$1")' in $2, '$(value "$3" "$1")' in $3"
}

# A hidden GPU counts as none.
for program in train_single train_dp; do
    refuse 77 'error: device cuda:0: ' env CUDA_VISIBLE_DEVICES= DDPC_EMULATED_GPUS=0 "$bin/$program" \
        --device cuda
done
checks=$((checks + 1))
env CUDA_VISIBLE_DEVICES= DDPC_EMULATED_GPUS=0 "$bin/train_dp" --steps 1 --no-eval >out.txt 2>err.txt ||
    fail "auto without a GPU: $(cat err.txt)"
grep -q '2 devices (cpu)' err.txt || fail "auto without a GPU: $(cat err.txt)"
if ! "$bin/train_single" --device cuda --steps 1 --no-eval >out.txt 2>err.txt; then
    [ "$failures" = 0 ] || exit 1
    cat err.txt
    exit 77
fi

refuse 77 'error: device cuda:99: ' "$bin/train_dp" --device cuda --device-ids 0,99
run cpu --device cpu --devices 2
run card --device cuda --device-ids 0,0
run again --device cuda --device-ids 0,0
grep -q '2 devices (cuda)' card.err || fail "not two devices: $(cat card.err)"
compare --bitwise card again
compare '--tol 1e-4' cpu card
equal moved_bytes_per_step cpu card
for key in peak_bytes_device0 peak_bytes_other final_loss; do equal $key card again; done
if "$bin/train_dp" --device cuda --devices 2 --steps 1 --no-eval >out.txt 2>err.txt; then
    run cards --device cuda --devices 2
    compare --bitwise card cards
    for key in moved_bytes_per_step peak_bytes_device0 peak_bytes_other final_loss; do equal $key card cards; done
fi
# In 16 bits: small batches and a high learning rate, so that fp16 skips a step.
amps="bf16 fp16"
"$bin/train_single" --device cuda --amp bf16 --steps 1 --no-eval >out.txt 2>err.txt || amps=fp16 # below 8.0
for amp in $amps; do
    rough="--amp $amp --global-batch 8 --lr 1 --steps 24 --no-eval"
    run card-$amp --device cuda --device-ids 0,0 $rough
    run again-$amp --device cuda --device-ids 0,0 $rough
    others=again-$amp
    if [ -d cards ]; then
        run cards-$amp --device cuda --device-ids 0,1 $rough
        others="$others cards-$amp"
    fi
    for other in $others; do
        compare --bitwise card-$amp $other
        for key in scale peak_bytes_device0 peak_bytes_other final_loss; do equal $key card-$amp $other; done
    done
done
checks=$((checks + 1))
[ "$(value card-fp16 skipped_steps)" -ge 1 ] || fail "fp16 skipped no steps"

# gradients NAME MODEL PROGRAM OPTION...: writes the gradients of the first step.
gradients() {
    name=$1 model=$2 program=$3
    shift 3
    checks=$((checks + 1))
    "$bin/$program" --model "$model" --data synthetic:1x8x8:10@150 --global-batch 50 --steps 1 --no-eval \
        --dump-step 0 --dump-grads "$name" "$@" >out.txt 2>err.txt || fail "$program $*: $(cat err.txt)"
}

# near TOLERANCE A B: gradients A are close to B, and gradients without --amp are farther away.
near() {
    checks=$((checks + 2))
    "$bin/compare_tensors" --tol "$1" --rtol 0 "$2" "$3" >cmp.txt 2>&1 ||
        fail "the gradients $2 and $3: $(tail -n 1 cmp.txt)"
    ! "$bin/compare_tensors" --tol "$1" --rtol 0 none-"${2#*-}" "$3" >cmp.txt 2>&1 ||
        fail "$1 does not tell the gradients $3 from float32's"
}

# mlp has no batch norms, whose statistics are per device, so it agrees with one GPU up to the order of sums. convnet
# agrees with the CPU, which stores activations in float32, up to that rounding.
while read -r amp model reference tolerance; do
    case $amps in *$amp*) ;; *) continue ;; esac
    for precision in none $amp; do
        gradients $precision-$model $model train_dp --device cuda --device-ids 0,0 --amp $precision
    done
    case $reference in
    one) gradients reference $model train_single --device cuda --amp $amp ;;
    cpu) gradients reference $model train_dp --device cpu --devices 2 --amp $amp ;;
    esac
    near $tolerance $amp-$model reference
done <<END
bf16 mlp one 1e-3
fp16 mlp one 3e-4
bf16 convnet cpu 1.2e-2
fp16 convnet cpu 2e-3
END

checks=$((checks + 1))
"$bin/train_single" --steps 1 --no-eval >out.txt 2>err.txt || fail "auto with a GPU: $(cat err.txt)"
grep -q '1 device (cuda)' err.txt || fail "auto with a GPU: $(cat err.txt)"

tally train_dp_cuda
