# facts.sh: the facts that bench/report needs besides the CSV files. Sourced by compare.sh after section.sh.

machine_lines() {
    local kinds=()
    [[ $kind == cpu ]] || kinds=("GPUs: $gpus for this run")
    machine_facts "${kinds[@]}" \
        "$([[ $kind == cpu ]] && echo BLAS || echo GPU): $(json blas "$(a_record)")"
}

# Prints facts.txt: "key value" lines with the facts that no CSV file contains.
comparison_facts() {
    local model skipped=()
    for model in $models; do ! has_batch_norm "$model" || skipped+=("$model"); done
    cat <<END
kind $kind
cores $cores
units $units
models $models
worlds $worlds
timed $(timed_worlds)
curve_models $(curve_models | paste -sd ' ' -)
repeats $repeats
patience $patience
warm_up $warm_up
epochs $epochs
traced_steps $traced_steps
link $link_text
fast_link $fast_text
untimed $(why_untimed)
traced $timeline_model
dumped_steps $dumped_steps
equivalence_steps $equivalence_steps
verdict $(verdict_line)
tolerance_first $(tolerance_at mlp 0)
tolerance_later $(tolerance_at mlp 1)
tolerance_resnet20 $(tolerance_at resnet20 0)
batch_norm ${skipped[*]}
probe $([[ $kind != cpu ]] || usual_probe 0 | tr '\t' ' ')
END
    mine_facts
    machine_lines | sed 's/^- /machine /'
}

# network_row PART MODEL [OPTION...]: prints a row of networks.csv from the program's summary of the network.
network_row() {
    "$bin/train_single" --model "$2" --data "$(data_of "$2")" "${@:3}" --summary 9<&- | awk -v part="$1" -v model="$2" '
        $2 ~ /^[A-Z]/ {
            layers++
            hidden = hidden (layers > 2 ? ";" : "") width # of all layers but the last
            width = $4
            gsub(/[^0-9]/, "", width)
        }
        $2 == "parameters" { print part "," model "," (model == "mlp" ? hidden : "") "," layers "," $1 }'
}

# networks.csv: the layers and sizes of each network. The same model may be another network in another part.
list_networks() {
    local model
    echo part,model,hidden,layers,parameters
    for model in $models; do
        # shellcheck disable=SC2046 # the options are words
        network_row speed "$model" $(speed_options "$model" | grep -o -- '--hidden [0-9,]*')
        network_row equivalence "$model"
    done
    for model in $(curve_models); do network_row curves "$model"; done
    ! is_timed 2 || network_row timeline mlp --hidden $deep
}
