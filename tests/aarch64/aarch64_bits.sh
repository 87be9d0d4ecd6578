#!/bin/sh
# aarch64_bits.sh BIN: each model ends with equal bits in DP and in DDP on 2 and 3 ranks: weights and buffers after five
# steps.
set -eu
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
status=0
for ranks in 2 3; do
    while read -r model options; do
        # shellcheck disable=SC2086 # options are words
        set -- --model "$model" --steps 5 --global-batch 12 --no-eval $options
        result=equal
        "$bin/train_dp" --devices "$ranks" --save dp "$@" >log 2>&1 &&
            "$bin/ddprun" --nproc-per-node "$ranks" "$bin/train_ddp" --sampler blocked --normalize global \
                --save ddp "$@" >log 2>&1 &&
            "$bin/compare_tensors" --bitwise dp ddp >log 2>&1 || { result=DIFFERENT status=1 && cat log >&2; }
        printf '%d ranks  %-8s %-40s %s\n' "$ranks" "$model" "$options" "$result"
        rm -f dp* ddp*
    done <<END
mlp
mlp --amp fp16
convnet --data synthetic:1x12x12:5@280
gpt --data text --context 16
segnet --data shapes:8x8@24
END
done
exit $status
