#!/bin/sh
# tutorial_own.sh BIN_DIR: the two programs of the guide from DataParallel to DistributedDataParallel compute the same
# results and print them once.
. "$(dirname "$0")/../programs/checks.sh"
for count in 1 2 3; do
    run 'DataParallel' "$bin/tutorial_own_dp" $count dp
    cp out.txt dp.txt
    run 'DistributedDataParallel' "$bin/ddprun" --nproc-per-node $count "$bin/tutorial_own_ddp" ddp blocked
    cmp dp.txt out.txt || fail "$count ranks print something else: $(cat out.txt)"
    if [ $count = 3 ]; then # 1/3 is not exact in float
        run 'three' "$bin/compare_tensors" --tol 1e-5 dp ddp
    else
        run 'the same bits' "$bin/compare_tensors" --bitwise dp ddp
    fi
done
run "PyTorch's sampler" "$bin/ddprun" --nproc-per-node 2 "$bin/tutorial_own_ddp" interleaved
run 'the same rows in another order' "$bin/compare_tensors" --tol 1e-3 dp interleaved
checks=$((checks + 1)) status=0
"$bin/tutorial_own_dp" 2>/dev/null || status=$?
[ "$status" = 2 ] || fail "status $status without arguments"
tally tutorial_own
