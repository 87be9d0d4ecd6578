#!/usr/bin/env bash
# all_cards.sh BIN_DIR full|quick CARDS: DataParallel and DistributedDataParallel on all cards, compared with one card
# and the whole batch: equal weights within rounding, and samples per second.
set -uo pipefail
bin=$1 size=$2 cards=$3
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
models=(mlp resnet20 gpt-small) steps=40 each=64
[[ $size == full ]] || models=(mlp) steps=3 each=4
failures=0

speed() { sed -n 's/^ *"samples_per_s_p50": \([0-9.e+]*\).*/\1/p' "$1/summary.json"; }

# train NAME COMMAND...: saves its weights to NAME.st, its records to the folder NAME
train() {
    local name=$1
    shift
    rm -rf "$name"
    "$@" --device cuda --model "$model" --data "$data" --global-batch $((each * cards)) --steps "$steps" --no-eval \
        --save "$name.st" --out "$name" >log 2>&1 && return
    echo "FAILED: $model, $name: $(grep -m 1 error: log || tail -n 1 log)"
    return 1
}

for model in "${models[@]}"; do
    data=synthetic:3x32x32:10
    [[ $model != gpt-small ]] || data=text
    train one "$bin/train_single" &&
        train dp "$bin/train_dp" --devices "$cards" &&
        train ddp "$bin/ddprun" --nproc-per-node "$cards" "$bin/train_ddp" --sampler blocked --normalize global || {
        failures=$((failures + 1))
        continue
    }
    for name in dp ddp; do
        # resnet20 is not compared: its shards have their own batch norm statistics.
        [[ $model == resnet20 ]] || "$bin/compare_tensors" --tol 1e-2 $name.st one.st >log || {
            echo "FAILED: $model: other weights by $name than by one card: $(tail -n 1 log)"
            failures=$((failures + 1))
        }
    done
    awk -v model="$model" -v one="$(speed one)" -v dp="$(speed dp)" -v ddp="$(speed ddp)" -v cards="$cards" 'BEGIN {
        printf "%-10s 1 card %8.0f samples/s, %d cards: DP %8.0f (%.2f times), DDP %8.0f (%.2f times)\n",
            model, one, cards, dp, dp / one, ddp, ddp / one }'
done
[[ $failures == 0 ]]
