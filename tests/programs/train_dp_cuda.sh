#!/bin/sh
# train_dp_cuda.sh BIN_DIR: train_dp on GPUs as a program: the same weights on one card and on two, and
# nearly those of CPU devices; its records; what it says when a GPU is not there. Ends with 77 without one.
. "$(dirname "$0")/checks.sh"

# run NAME OPTION...: trains the convnet for some steps into the folder NAME.
run() {
    name=$1
    shift
    checks=$((checks + 1))
    "$bin/train_dp" --model convnet --data synthetic:1x8x8:10@150 --global-batch 50 --steps 5 \
        --schedule constant --log-every 1 --out "$name" "$@" >"$name.txt" 2>"$name.err" ||
        fail "$*: $(cat "$name.err")"
}

# compare OPTION A B: the weights of two runs
compare() {
    checks=$((checks + 1))
    "$bin/compare_tensors" $1 "$2/last.safetensors" "$3/last.safetensors" >cmp.txt 2>&1 ||
        fail "the weights of $2 and $3: $(tail -n 1 cmp.txt)"
}

value() { sed -n "s/.*\"$2\": *\([^,}]*\).*/\1/p" "$1/summary.json"; }

equal() { # KEY A B: the same value, not zero, in the records of two runs
    checks=$((checks + 1))
    [ -n "$(value "$2" "$1")" ] && [ "$(value "$2" "$1")" != 0 ] &&
        [ "$(value "$2" "$1")" = "$(value "$3" "$1")" ] ||
        fail "$1 is '$(value "$2" "$1")' in $2, '$(value "$3" "$1")' in $3"
}

# No GPU to be seen: as without one.
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
checks=$((checks + 1))
"$bin/train_single" --steps 1 --no-eval >out.txt 2>err.txt || fail "auto with a GPU: $(cat err.txt)"
grep -q '1 device (cuda)' err.txt || fail "auto with a GPU: $(cat err.txt)"

tally train_dp_cuda
