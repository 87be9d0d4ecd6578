#!/bin/sh
# gpu_modules.sh BIN_DIR: GPU libraries are loaded when a GPU is requested, and not before: no program links CUDA's
# libraries, a run on the CPU loads none, and a run that finds no GPU ends with 77 and one line. In builds with modules:
# they are found beside a program that was moved, and a module that cannot be loaded is reported.
. "$(dirname "$0")/checks.sh"
modules=${bin%/*}/lib
export CUDA_VISIBLE_DEVICES= # no GPU, unless a command sets it
gpu='cuda|nccl|cudnn|cublas|libstdc'

for program in train_single train_dp train_ddp ddprun bench_allreduce compare_tensors; do
    checks=$((checks + 1))
    [ -x "$bin/$program" ] || fail "there is no $program"
    named=$(ldd "$bin/$program" | grep -E "$gpu" | cut -d '(' -f 1 || true)
    [ -z "$named" ] || fail "$program needs" $named
done
# OpenBLAS takes two thirds of the start of a program that only reads files, and a script starts hundreds.
for program in ddprun compare_tensors dump_data merge_traces; do
    checks=$((checks + 1))
    ! ldd "$bin/$program" | grep -q openblas || fail "$program loads OpenBLAS"
done

# loaded COMMAND...: prints the modules that it loads on a machine with two GPUs.
loaded() {
    CUDA_VISIBLE_DEVICES=0,1 DDPC_EMULATED_GPUS=2 LD_DEBUG=files "$@" 2>&1 >out.txt </dev/null |
        grep -Eo 'libddpc_[a-z]*\.so' | sort -u
}
for arguments in '--help' '--device cpu --steps 1 --no-eval'; do
    checks=$((checks + 1))
    [ -z "$(loaded "$bin/train_single" $arguments)" ] || fail "train_single $arguments loads what GPUs need"
done

for program in train_single train_dp train_ddp; do
    refuse 77 'error: device cuda:0: ' env DDPC_EMULATED_GPUS=0 "$bin/$program" --device cuda --steps 1
done
checks=$((checks + 1))
loaded env CUDA_VISIBLE_DEVICES= "$bin/train_single" --device cuda --steps 1 >modules.txt || true
[ ! -s modules.txt ] || fail "without a GPU, --device cuda loads $(cat modules.txt)"

if [ -e "$modules/libcuda_emulator.so" ]; then
    export CUDA_VISIBLE_DEVICES=0 DDPC_EMULATED_GPUS=1
    mkdir -p there/bin there/lib beside broken/bin broken/lib
    cp "$bin/train_single" there/bin
    cp "$modules"/libddpc_*.so there/lib
    cp "$bin/train_single" "$modules"/libddpc_*.so beside
    cp "$bin/train_single" broken/bin
    echo "no shared object" >broken/lib/libddpc_cuda.so
    chmod +x broken/lib/libddpc_cuda.so
    for program in there/bin/train_single beside/train_single; do
        run "$program" "$work/$program" --device cuda --steps 1 --no-eval
        grep -q '1 device (cuda)' err.txt || fail "$program is not on a GPU: $(cat err.txt)"
        checks=$((checks + 1))
        LD_DEBUG=files "$work/$program" --device cuda --steps 1 --no-eval 2>&1 >out.txt |
            grep -q "calling init: $work/${program%/train_single}.*/libddpc_cuda.so" ||
            fail "$program does not take the module beside it"
    done
    refuse 1 'error: device cuda:0: ' broken/bin/train_single --device cuda --steps 1
    run 'auto with a module that is none' broken/bin/train_single --steps 1 --no-eval
    grep -q '^device cuda: .*/libddpc_cuda.so: ' err.txt || fail "auto says nothing: $(cat err.txt)"
fi
tally gpu_modules
