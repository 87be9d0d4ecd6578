# equivalence.sh: are the gradients the same bits? Sourced by compare.sh after runs.sh.
#
# Every strategy trains the same few steps from the same weights on the same batches, and dumps the
# reduced gradients of steps 0, 1 and 10, and everything at the end: weights, optimizer state, buffers.
# Then pairs of runs are compared tensor by tensor into equivalence.csv. Nothing counts as held that
# was not compared: a missing file, a missing tensor and gradients that are all zero are failures.
# On CPU devices DP and DDP must agree in every bit; on GPUs to a tolerance, because NCCL chooses the
# order of its sums by the size of what it sums.

dumped_steps="0 1 10"
equivalence_steps=12
equivalence_failures=0
comparisons=0

# A run's name is its strategy, its number of devices and its variant: "dp:2", "ddp:2 cap=1". `model` is its network.

# files_of RUN: prints the run's folder.
files_of() {
    echo "$out/runs/equivalence-$model-${1//[: =]/-}"
}

# probe RUN OPTION...: makes a run whose gradients and final state are compared. If it fails, the comparisons fail
# because its files are missing.
probe() {
    probe_state "$@" --dump-grads "$(files_of "$1")/{step}.safetensors" --dump-step "${dumped_steps// /,}"
}

# probe_state RUN OPTION...: makes a run of which only the final state is compared, so it dumps no gradients.
probe_state() {
    local files world=${1#*:}
    files=$(files_of "$1")
    train "${files##*/}" "${1%%:*}" "${world%% *}" --model "$model" --steps "$equivalence_steps" --no-eval \
        --save "$files/weights.safetensors" "${@:2}" || rm -f "$files"/{weights,0,1,10}.safetensors
}

# count_tensors FILE: sets expected to the number of tensors in a safetensors file's header, which is cached: one file
# is compared with many.
declare -A tensors_in=()
count_tensors() {
    expected=${tensors_in[$1]:-}
    [[ -z $expected ]] || return 0
    expected=$(head -c 1000000 "$1" | tr -c '[:print:]' '\n' | awk '{ n += gsub(/"dtype"/, "") } END { print n + 0 }')
    tensors_in[$1]=$expected
}

# compare_files A B WHAT STEP FILE_A FILE_B REQUIRED TOLERANCE: appends a row per tensor of the runs A and B.
# REQUIRED is bitwise, or tolerance: then the largest difference in a tensor may be TOLERANCE times the
# tensor's largest magnitude. (Rounding errors of a sum grow with the sum of its terms, not with each
# result; an element that cancels to nearly nothing has no relative accuracy to offer.)
compare_files() {
    local a=$1 b=$2 what=$3 step=$4 file_a=$5 file_b=$6 rows=$out/runs/rows.csv expected
    comparisons=$((comparisons + 1))
    if [[ ! -s $file_a || ! -s $file_b ]]; then
        say "error: $model $a $b: no $what of step $step to compare"
        equivalence_failures=$((equivalence_failures + 1))
        return 0
    fi
    count_tensors "$file_a"
    "$bin/compare_tensors" "$file_a" "$file_b" --csv >"$rows" 2>"$rows.log" || true
    awk -v model="$model" -v a="$a" -v b="$b" -v what="$what" -v step="$step" \
        -v expected="$expected" -v required="$7" -v tolerance="$8" \
        -f bench/compare/equivalence.awk "$rows" >>"$out/equivalence.csv" && return 0
    cat "$rows.log" >&2
    equivalence_failures=$((equivalence_failures + 1))
}

# compare_runs A B REQUIRED: compares the gradients and the final state of two runs.
compare_runs() {
    [[ $planning == 0 ]] || return 0
    local step
    for step in $dumped_steps; do
        compare_files "$1" "$2" gradient "$step" "$(files_of "$1")/$step.safetensors" "$(files_of "$2")/$step.safetensors" \
            "$3" "$(tolerance_at "$model" "$step")"
    done
    compare_states "$@"
}

# compare_states A B REQUIRED: compares only the final state of two runs.
compare_states() {
    [[ $planning == 0 ]] || return 0
    local tolerance
    tolerance=$(tolerance_at "$model" end)
    compare_files "$1" "$2" weight "$equivalence_steps" "$(files_of "$1")/weights.safetensors" \
        "$(files_of "$2")/weights.safetensors" "$3" "$tolerance"
    compare_files "$1" "$2" optimizer "$equivalence_steps" "$(optimizer_file "$(files_of "$1")")" \
        "$(optimizer_file "$(files_of "$2")")" "$3" "$tolerance"
}

# beside A B OPTION...: makes run B, which computes the same sums as A, and compares the two.
beside() {
    probe "${@:2}"
    compare_runs "$1" "$2" "$same"
}

# The same for the final state only.
beside_state() {
    probe_state "${@:2}"
    compare_states "$1" "$2" "$same"
}

optimizer_file() {
    local files=("$1"/weights.safetensors.*optimizer)
    echo "${files[0]}"
}

# Against one device, and on GPUs, only the order of additions differs. From equal weights (step 0) a sum of a few
# thousand float32 terms is accurate to about 1e-6 of its scale; later steps start from slightly different weights, and
# training amplifies the difference. resnet20's nineteen ReLU layers amplify it more: an input within rounding of zero
# that changes sign changes a gradient by up to 3 % of the largest (measured between two versions of one BLAS), still
# far less than any error in the code causes.
tolerance_at() {
    case $1:$2 in
    resnet20:*) echo 0.1 ;;
    *:0) echo 1e-5 ;;
    *) echo 1e-4 ;;
    esac
}

# Prints the required comparison of two runs with the same sums, such as DP and DDP, or DDP with other buckets.
same_sums() {
    [[ $kind == cpu ]] && echo bitwise || echo tolerance
}

# has_batch_norm MODEL: true if N devices compute another function than one device. With batch norm they normalise N
# small batches, where one device normalises a large one, so that no tolerance is possible (PyTorch differs in the same
# way).
has_batch_norm() {
    case $1 in
    toy | mlp | gpt*) return 1 ;;
    *) return 0 ;;
    esac
}

# equivalence_of MODEL: makes all runs and comparisons of one model.
equivalence_of() {
    local model=$1 batch=60 world cap same
    same=$(same_sums)
    case $model in
    resnet20) batch=24 ;;
    gpt*) batch=12 ;;
    esac
    set -- --data "$(data_of "$model")" --global-batch $batch
    [[ $model != gpt* ]] || set -- "$@" --drop-last # the last batch does not divide evenly
    # A small learning rate, so that training does not amplify the allowed differences.
    [[ $model:$same != resnet20:tolerance ]] || set -- "$@" --lr 1e-5
    probe single:1 "$@"
    for world in 1 $worlds; do
        probe "dp:$world" "$@"
        beside "dp:$world" "ddp:$world" "$@"
        if [[ $world == 1 ]]; then
            compare_runs single:1 dp:1 "$same"
        elif ! has_batch_norm "$model"; then
            compare_runs "dp:$world" single:1 tolerance
            compare_runs "ddp:$world" single:1 tolerance
        fi
    done

    world=${worlds%% *}
    for cap in 0 0.01 1 25; do beside "ddp:$world" "ddp:$world cap=$cap" --bucket-cap-mb "$cap" "$@"; done
    # The optimizer's state sharded over the ranks: with an option that reads all gradients, whole gradients are summed
    # first; without one, the sum, the step and the new weights are one pass. Then weights and gradients sharded as
    # well.
    for world in $worlds; do
        beside "ddp:$world" "zero1:$world" "$@"
        beside_state "ddp:$world" "zero1:$world fused" "$@"
        beside "ddp:$world" "fsdp:$world" "$@"
    done

    world=${worlds%% *}
    beside "ddp:$world" "ddp:$world no-overlap" --no-overlap "$@"

    # One row too many for an even split.
    probe "dp:3 uneven" "$@" --global-batch $((batch + 1))
    beside "dp:3 uneven" "ddp:3 uneven" "$@" --global-batch $((batch + 1))
    beside "ddp:3 uneven" "fsdp:3 uneven" "$@" --global-batch $((batch + 1))
    equivalence_of_mine $batch "$@"
    [[ $model != gpt* ]] || equivalence_of_adamw "$@"
    [[ $kind == cpu ]] || equivalence_of_graphs "$world" "$@"
}

# equivalence_of_adamw OPTION...: with the options of a gpt: the optimizer has two moments, and gradients are clipped by
# their global norm; without clipping the sharded optimizer needs one pass. (AdamW is not compared with one device:
# where a gradient is zero except for rounding errors, it divides one rounding error by another.)
equivalence_of_adamw() {
    local world
    set -- "$@" --optimizer adamw --lr 1e-3 --warmup-steps 4
    for world in $(tr ' ' '\n' <<<"$worlds 3 5" | sort -nu); do
        probe "dp:$world adamw" "$@" --clip-grad-norm 1
        beside "dp:$world adamw" "ddp:$world adamw" "$@" --clip-grad-norm 1
        beside "ddp:$world adamw" "zero1:$world adamw" "$@" --clip-grad-norm 1
        beside "ddp:$world adamw" "fsdp:$world adamw" "$@" --clip-grad-norm 1
        probe_state "ddp:$world unclipped" "$@"
        beside_state "ddp:$world unclipped" "zero1:$world unclipped" "$@"
    done
}

# equivalence_of_graphs WORLD OPTION...: a captured step computes the same bits as before; DDP's graph contains the
# collectives.
equivalence_of_graphs() {
    beside single:1 "single:1 graph" --cuda-graph "${@:2}"
    beside "ddp:$1" "ddp:$1 graph" --cuda-graph "${@:2}"
}

# Writes equivalence.csv for all models.
check_equivalence() {
    local model
    [[ $planning == 1 ]] || echo "model,a,b,what,step,tensor,count,max_abs,max_rel,max_ulp,bitwise,required,tolerance,held" \
        >"$out/equivalence.csv"
    for model in $models; do
        begin_section "equivalence: $model"
        equivalence_of "$model"
    done
}

verdict_line() {
    local rows held
    rows=$(csv 'of("b") !~ /^mine:/ { n++ } END { print n + 0 }' "$out/equivalence.csv")
    held=$(csv 'of("b") !~ /^mine:/ { n += of("held") } END { print n + 0 }' "$out/equivalence.csv")
    if [[ $equivalence_failures == 0 ]]; then
        echo "Equivalence: held in all $comparisons comparisons, $rows tensors."
    else
        echo "Equivalence: BROKEN in $equivalence_failures of $comparisons comparisons" \
            "($held of $rows tensors held)."
    fi
}

equivalence_verdict() {
    verdict_line
    [[ $equivalence_failures == 0 && $comparisons -gt 0 ]]
}
