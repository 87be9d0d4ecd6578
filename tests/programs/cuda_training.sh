#!/usr/bin/env bash
# cuda_training.sh BIN: train_single and train_ddp on a GPU agree with the CPU; steps replayed from a graph equal eager
# steps bit for bit; a run that was stopped there can be resumed here.
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

skipped=0
"$bin/train_single" --device cuda --model mlp --steps 1 >"$work/out" 2>&1 || skipped=$?
if [[ $skipped == 77 ]]; then
    cat "$work/out"
    exit 77
fi

emulated=$(grep -c 'emulated GPU' "$work/out" || true)
. "$(dirname "$0")/gpus.sh"
amp=fp16
! has_bf16 || amp=bf16
failures=0
fail() {
    echo "FAILED  $*"
    cat "$work/out"
    failures=$((failures + 1))
}

# train NAME COMMAND...: trains and saves to NAME.
train() {
    local name=$1
    shift
    "$@" --save "$work/$name" --out "$work/$name.out" >"$work/out" 2>&1 || fail "$*"
}

single() {
    local name=$1
    shift
    train "$name" "$bin/train_single" --no-eval "$@"
}

# same A B WHAT: equal bits. close A B TOLERANCE WHAT.
same() {
    "$bin/compare_tensors" --bitwise "$work/$1" "$work/$2" >"$work/out" || fail "$3: not the same bits"
}
close() {
    "$bin/compare_tensors" --tol "$3" "$work/$1" "$work/$2" >"$work/out" || fail "$4"
}

# same_scores A B TOLERANCE WHAT: compares the steps' accuracy and mean IoU.
same_scores() {
    for name in "$1" "$2"; do
        awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
            { print $1, $at["accuracy"], $at["mean_iou"] }' "$work/$name.out/steps.csv" >"$work/$name.scores"
    done
    paste -d ' ' "$work/$1.scores" "$work/$2.scores" | awk -v tolerance="$3" '
        function near(a, b) { return a == b || (a - b) ^ 2 <= tolerance ^ 2 }
        $1 != $4 || !near($2, $5) || !near($3, $6)
        END { if (NR != 10) print NR, "rows" }' >"$work/out"
    [[ ! -s $work/out ]] || fail "$4: other scores"
}

# Ten steps agree with the CPU's. (A relu whose input is near 0 may switch, so learning rates are small.)
while read -r model lr batch; do
    run=(--model "$model" --lr "$lr" --global-batch "$batch" --steps 10 --log-every 1)
    [[ $model == segnet ]] && run+=(--data shapes:32x32@64)
    single cpu --device cpu "${run[@]}"
    single cuda --device cuda "${run[@]}"
    close cuda cpu 1e-4 "$model: ten steps on cuda and on the cpu"
    same_scores cuda cpu "$([[ $model == segnet ]] && echo 0.01 || echo 0.13)" "$model: ten steps on cuda and on the cpu"
    [[ $model == segnet ]] && continue # its divisor, the count of labelled pixels, is known within the step only
    single graph --device cuda --cuda-graph "${run[@]}"
    same graph cuda "$model: a captured step"
    same_scores graph cuda 0 "$model: a captured step"
done <<'END'
mlp 0.01 60
convnet 0.01 60
resnet20 0.0002 8
segnet 0.01 8
END

# No step waits for a copy from the host, although the schedule changes the optimizer's scalars in every step: 30 steps
# have as many such copies as 20, all of the initial weights. (Only the emulator counts.)
copies() {
    DDPC_EMULATOR_COUNT=1 "$bin/train_single" --device cuda --no-eval --log-every 1000 "$@" 2>&1 |
        sed -n 's/^cuda_emulator: *\([0-9]*\) x a copy from the host between kernels.*/\1/p'
}
for options in "" "--optimizer adamw" --cuda-graph; do
    [[ $emulated != 0 ]] || continue
    # shellcheck disable=SC2086 # the options are words
    few=$(copies --steps 20 $options) many=$(copies --steps 30 $options)
    [[ $few -gt 0 && $few == "$many" ]] || fail "copies in 20 and in 30 steps, $options: $few, $many"
done

# AdamW, whose scalars change in every step, with clipping and a shorter last batch, over two epochs with an evaluation
# in between.
adamw=(--device cuda --model convnet --optimizer adamw --lr 0.001 --global-batch 401 --epochs 2
       --clip-grad-norm 0.3)
train eager "$bin/train_single" "${adamw[@]}"
train graph "$bin/train_single" "${adamw[@]}" --cuda-graph
same graph eager "adamw over two epochs"

# 16 bits, and a run that is stopped and resumed, on the GPU and with its last steps on the CPU.
single whole --device cuda --amp $amp --schedule constant --steps 12
single part --device cuda --amp $amp --schedule constant --steps 6
single part --device cuda --amp $amp --schedule constant --steps 12 --resume "$work/part"
same part whole "a resumed run"
single half --device cuda --steps 6 --lr 0.01 --schedule constant
single half --device cpu --steps 12 --lr 0.01 --schedule constant --resume "$work/half"
single all --device cpu --steps 12 --lr 0.01 --schedule constant
close half all 1e-4 "begun on cuda, ended on the cpu"

# One rank of DDP equals one device, with eager and with captured steps.
single one --device cuda --model convnet --steps 12
train ddp "$bin/train_ddp" --no-eval --device cuda --model convnet --steps 12
train graph "$bin/train_ddp" --no-eval --device cuda --model convnet --steps 12 --cuda-graph
same ddp one "one rank of DDP"
same graph one "one rank of DDP, captured"
ranks_on_gpus 2
for option in "" --cuda-graph; do
    train "two$option" "${launch[@]}" "$bin/train_ddp" --no-eval \
        --device cuda --model convnet --steps 12 $option
done
same two two--cuda-graph "two ranks, captured"

"$bin/train_single" --device cuda --steps 6 --profile --no-eval >"$work/out" 2>&1 || fail "--profile"
grep -q 'backward' "$work/out" || fail "--profile tells no phases"

if "$bin/train_single" --device cuda --steps 60 --no-eval --lr 1e6 >"$work/out" 2>&1; then
    fail "a run that diverges ends as if nothing had happened"
fi
grep -q 'training has diverged' "$work/out" || fail "a run that diverges says so"

echo "cuda_training: $failures failures"
[[ $failures == 0 ]]
