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

# probe MODEL NAME STRATEGY WORLD OPTION...: a run that the comparisons read. One that failed leaves
# nothing to compare, which fails them.
probe() {
    local files=$out/runs/equivalence-$1-$2
    probe_state "$@" --dump-grads "$files/{step}.safetensors" --dump-step "${dumped_steps// /,}"
}

# probe_state MODEL NAME STRATEGY WORLD OPTION...: a run of which only the state at the end is compared, so that it
# writes no gradients.
probe_state() {
    local model=$1 name=$2 strategy=$3 world=$4
    shift 4
    local files=$out/runs/equivalence-$model-$name
    train "equivalence-$model-$name" "$strategy" "$world" --model "$model" \
        --steps "$equivalence_steps" --no-eval --save "$files/weights.safetensors" "$@" ||
        rm -f "$files"/{weights,0,1,10}.safetensors
}

# tensors_in FILE: prints how many tensors the header of a safetensors file names.
tensors_in() {
    head -c 1000000 "$1" | tr -c '[:print:]' '\n' |
        awk '{ n += gsub(/"dtype"/, "") } END { print n + 0 }'
}

# compare_files MODEL A B WHAT STEP FILE_A FILE_B REQUIRED TOLERANCE: appends a row per tensor.
# REQUIRED is bitwise, or tolerance: then the largest difference in a tensor may be TOLERANCE times the
# tensor's largest magnitude. (Rounding errors of a sum grow with the sum of its terms, not with each
# result; an element that cancels to nearly nothing has no relative accuracy to offer.)
compare_files() {
    local model=$1 a=$2 b=$3 what=$4 step=$5 file_a=$6 file_b=$7 required=$8 tolerance=$9
    local expected rows=$out/runs/rows.csv
    comparisons=$((comparisons + 1))
    if [[ ! -s $file_a || ! -s $file_b ]]; then
        say "error: $model $a $b: no $what of step $step to compare"
        equivalence_failures=$((equivalence_failures + 1))
        return 0
    fi
    expected=$(tensors_in "$file_a")
    "$bin/compare_tensors" "$file_a" "$file_b" --csv >"$rows" 2>"$rows.log" || true
    awk -v model="$model" -v a="$a" -v b="$b" -v what="$what" -v step="$step" \
        -v expected="$expected" -v required="$required" -v tolerance="$tolerance" \
        -f bench/compare/equivalence.awk "$rows" >>"$out/equivalence.csv" && return 0
    cat "$rows.log" >&2
    equivalence_failures=$((equivalence_failures + 1))
}

# compare_runs MODEL A NAME_A B NAME_B REQUIRED: compares the gradients of two runs, and their state at the end.
compare_runs() {
    [[ $planning == 0 ]] || return 0
    local model=$1 a=$2 b=$4 required=$6 step
    local files_a=$out/runs/equivalence-$model-$3 files_b=$out/runs/equivalence-$model-$5
    for step in $dumped_steps; do
        compare_files "$model" "$a" "$b" gradient "$step" "$files_a/$step.safetensors" \
            "$files_b/$step.safetensors" "$required" "$(tolerance_at "$model" "$step")"
    done
    compare_states "$@"
}

# compare_states MODEL A NAME_A B NAME_B REQUIRED: compares only the state at the end of two runs.
compare_states() {
    [[ $planning == 0 ]] || return 0
    local model=$1 a=$2 b=$4 required=$6
    local files_a=$out/runs/equivalence-$model-$3 files_b=$out/runs/equivalence-$model-$5
    compare_files "$model" "$a" "$b" weight "$equivalence_steps" "$files_a/weights.safetensors" \
        "$files_b/weights.safetensors" "$required" "$(tolerance_at "$model" end)"
    compare_files "$model" "$a" "$b" optimizer "$equivalence_steps" "$(optimizer_file "$files_a")" \
        "$(optimizer_file "$files_b")" "$required" "$(tolerance_at "$model" end)"
}

optimizer_file() {
    find "$1" -name 'weights.safetensors.*optimizer' | head -n 1
}

# Against one device, and on GPUs, only the order of sums differs. From the same weights (step 0) a sum
# of a few thousand float terms is good to about 1e-6 of its scale; each step then starts from weights
# that differ a little, and training amplifies that. In resnet20 nineteen layers of relu amplify it more:
# an input within rounding of zero that falls on the other side of it moves a gradient by up to 3 % of
# the largest (seen between two versions of one BLAS), which is still far from any mistake.
tolerance_at() {
    case $1:$2 in
    resnet20:*) echo 0.1 ;;
    *:0) echo 1e-5 ;;
    *) echo 1e-4 ;;
    esac
}

# Prints what is required of two runs that add up the same numbers, as DP and DDP do, and DDP with other buckets.
same_sums() {
    [[ $kind == cpu ]] && echo bitwise || echo tolerance
}

# has_batch_norm MODEL: true if N devices compute another function than one. With batch norm they normalise N small
# batches, where one device normalises a large one, so that no tolerance would mean anything (PyTorch differs in the
# same way).
has_batch_norm() {
    case $1 in
    toy | mlp | gpt*) return 1 ;;
    *) return 0 ;;
    esac
}

# equivalence_of MODEL: all runs and comparisons of one model.
equivalence_of() {
    local model=$1 batch=60 world cap same
    same=$(same_sums)
    case $model in
    resnet20) batch=24 ;;
    gpt*) batch=12 ;;
    esac
    set -- --data "$(data_of "$model")" --global-batch $batch
    [[ $model != gpt* ]] || set -- "$@" --drop-last # the last batch does not divide evenly
    # So that steps do not amplify what is allowed to differ.
    [[ $model:$same != resnet20:tolerance ]] || set -- "$@" --lr 1e-5
    probe "$model" single single 1 "$@"
    for world in 1 $worlds; do
        probe "$model" "dp$world" dp "$world" "$@"
        probe "$model" "ddp$world" ddp "$world" "$@"
        compare_runs "$model" "dp:$world" "dp$world" "ddp:$world" "ddp$world" "$same"
        if [[ $world == 1 ]]; then
            compare_runs "$model" single:1 single dp:1 dp1 "$same"
        elif ! has_batch_norm "$model"; then
            compare_runs "$model" "dp:$world" "dp$world" single:1 single tolerance
            compare_runs "$model" "ddp:$world" "ddp$world" single:1 single tolerance
        fi
    done

    world=${worlds%% *}
    for cap in 0 0.01 1 25; do
        probe "$model" "cap$cap" ddp "$world" --bucket-cap-mb "$cap" "$@"
        compare_runs "$model" "ddp:$world" "ddp$world" "ddp:$world cap=$cap" "cap$cap" "$same"
    done
    # The optimizer divided over the ranks: an option that reads all gradients has them whole; without one the sum,
    # the step and the new weights are one pass. Then weights and gradients divided as well.
    for world in $worlds; do
        probe "$model" "zero1-$world" zero1 "$world" "$@"
        compare_runs "$model" "ddp:$world" "ddp$world" "zero1:$world" "zero1-$world" "$same"
        probe_state "$model" "zero1-$world-fused" zero1 "$world" "$@"
        compare_states "$model" "ddp:$world" "ddp$world" "zero1:$world fused" "zero1-$world-fused" "$same"
        probe "$model" "fsdp$world" fsdp "$world" "$@"
        compare_runs "$model" "ddp:$world" "ddp$world" "fsdp:$world" "fsdp$world" "$same"
    done

    world=${worlds%% *}
    probe "$model" no-overlap ddp "$world" --no-overlap "$@"
    compare_runs "$model" "ddp:$world" "ddp$world" "ddp:$world no-overlap" no-overlap "$same"

    # One row too many for an even split.
    probe "$model" dp3-uneven dp 3 "$@" --global-batch $((batch + 1))
    probe "$model" ddp3-uneven ddp 3 "$@" --global-batch $((batch + 1))
    compare_runs "$model" "dp:3 uneven" dp3-uneven "ddp:3 uneven" ddp3-uneven "$same"
    probe "$model" fsdp3-uneven fsdp 3 "$@" --global-batch $((batch + 1))
    compare_runs "$model" "ddp:3 uneven" ddp3-uneven "fsdp:3 uneven" fsdp3-uneven "$same"
    equivalence_of_mine "$model" $batch "$@"
    [[ $model != gpt* ]] || equivalence_of_adamw "$model" "$@"
    [[ $kind == cpu ]] || equivalence_of_graphs "$model" "$world" "$@"
}

# equivalence_of_adamw MODEL OPTION...: as a gpt is trained: the optimizer has two moments, and one
# norm of all gradients shortens them; without that the divided optimizer does everything in one pass.
# (Against one device AdamW shows nothing: where a gradient is zero but for rounding, it divides the
# rounding by itself.)
equivalence_of_adamw() {
    local model=$1 world
    shift
    set -- "$@" --optimizer adamw --lr 1e-3 --warmup-steps 4
    for world in $(tr ' ' '\n' <<<"$worlds 3 5" | sort -nu); do
        probe "$model" "dp$world-adamw" dp "$world" "$@" --clip-grad-norm 1
        probe "$model" "ddp$world-adamw" ddp "$world" "$@" --clip-grad-norm 1
        compare_runs "$model" "dp:$world adamw" "dp$world-adamw" "ddp:$world adamw" "ddp$world-adamw" "$same"
        probe "$model" "zero1-$world-adamw" zero1 "$world" "$@" --clip-grad-norm 1
        compare_runs "$model" "ddp:$world adamw" "ddp$world-adamw" "zero1:$world adamw" "zero1-$world-adamw" "$same"
        probe "$model" "fsdp$world-adamw" fsdp "$world" "$@" --clip-grad-norm 1
        compare_runs "$model" "ddp:$world adamw" "ddp$world-adamw" "fsdp:$world adamw" "fsdp$world-adamw" "$same"
        probe_state "$model" "ddp$world-unclipped" ddp "$world" "$@"
        probe_state "$model" "zero1-$world-unclipped" zero1 "$world" "$@"
        compare_states "$model" "ddp:$world unclipped" "ddp$world-unclipped" \
            "zero1:$world unclipped" "zero1-$world-unclipped" "$same"
    done
}

# equivalence_of_graphs MODEL WORLD OPTION...: a step that was captured computes what it computed
# before; DDP's has the collectives in it.
equivalence_of_graphs() {
    local model=$1 world=$2
    shift 2
    probe "$model" single-graph single 1 --cuda-graph "$@"
    compare_runs "$model" single:1 single "single:1 graph" single-graph tolerance
    probe "$model" ddp-graph ddp "$world" --cuda-graph "$@"
    compare_runs "$model" "ddp:$world" "ddp$world" "ddp:$world graph" ddp-graph tolerance
}

# equivalence.csv, from all models.
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
