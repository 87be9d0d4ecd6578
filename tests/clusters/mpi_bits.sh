#!/bin/sh
# mpi_bits.sh BIN_DIR MPI: training over MPI has the bits of shm and of DataParallel, in weights and optimizer state;
# MPI's own reductions, whose bits are not promised, are announced as such.
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"

# over_both N OPTION...: trains over mpi and over shm and compares
over_both() {
    n=$1
    shift
    run "mpi $n $*" ranks "$n" "$bin/train_ddp" --backend mpi --sampler blocked --normalize global --no-eval \
        --save mpi "$@"
    run "shm $n $*" "$bin/ddprun" --nproc-per-node "$n" "$bin/train_ddp" --sampler blocked --normalize global \
        --no-eval --save shm "$@"
    same mpi shm
}
# train N OPTION...: also compares with DataParallel
train() {
    over_both "$@"
    n=$1
    shift
    run "dp $n $*" "$bin/train_dp" --devices "$n" --no-eval --save dp "$@"
    same mpi dp
}
worlds='2 3 4 5'
[ "$mpi" = openmpi ] || worlds=2
for world in $worlds; do train "$world" --steps 12 --optimizer adamw; done
train 2 --model convnet --steps 5 --global-batch 41
over_both 2 --model convnet --steps 5 --bucket-cap-mb 0 --no-overlap
# Options that change the messages: 16 bits, low rank, the sharded optimizer, subgroups, buckets outside shared memory.
some=4
[ "$mpi" = openmpi ] || some=2
over_both $some --steps 6 --comm-hook fp16
over_both $some --steps 6 --comm-hook powersgd --powersgd-start 2
over_both $some --steps 6 --zero-optimizer --optimizer adamw
over_both $some --model resnet20 --steps 2 --global-batch 16 --sync-batch-norm
over_both $some --steps 6 --no-gradient-as-bucket-view

# MPI's own reductions: the ranks agree, and the run prints that no bits are promised.
run "fast sums" ranks 2 "$bin/train_ddp" --backend mpi --fast-sums --sampler blocked --steps 5 --no-eval --save fast
checks=$((checks + 1))
grep -qF 'bits: not promised against DataParallel (MPI adds up in another order)' err.txt ||
    fail "fast sums say nothing: $(cat err.txt)"
run "close" "$bin/train_dp" --devices 2 --steps 5 --no-eval --save dp
run "fast sums are as good" "$bin/compare_tensors" --tol 1e-5 fast dp
refuse 2 "--fast-sums: backend shm has no faster sums" "$bin/train_ddp" --fast-sums --steps 1

tally mpi_bits
