# disturbed.sh: was the machine ours? Sourced by compare.sh after runs.sh; uses its bin, kind and out.
#
# bench_probe runs before and after each measurement of a step's speed (the probe between two runs belongs to
# both): what all cores reach together in products and in memory. A run is disturbed if one of its two probes
# found less than undisturbed_share of the comparison's own median probe. Such a run is made once more; one that
# stays disturbed counts only where most of its repeats are, and then no sentence speaks of them.

undisturbed_share=0.8
last_probe= # "gflops,triad_gbps" of the latest probe

take_probe() {
    last_probe=$("$bin/bench_probe" | sed 's/.*gflops=\([0-9.]*\) triad_gbps=\([0-9.]*\).*/\1,\2/')
}

# between_probes NAME COMMAND...: runs it (train or what calls it for the run NAME) between two probes.
between_probes() {
    local name=$1 before
    shift
    if [[ $kind != cpu || $planning == 1 ]] || { [[ $again == 0 ]] && is_finished "$name"; }; then
        "$@"
        return
    fi
    [[ -n $last_probe ]] || take_probe
    before=$last_probe
    "$@"
    take_probe
    printf 'gflops,triad_gbps\n%s\n%s\n' "$before" "$last_probe" >"$out/runs/$name/probe.csv"
}

# The medians of all probes: "gflops<TAB>triad_gbps".
usual_probe() {
    local column
    for column in gflops triad_gbps; do
        csv '{ print of(column) }' column=$column "$out"/runs/*/probe.csv | sort -g |
            awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
    done | paste -s -
}

# The names of the runs that were disturbed, one a line.
disturbed_runs() {
    local usual
    [[ $kind == cpu && -n $(find "$out/runs" -name probe.csv | head -n 1) ]] || return 0
    usual=$(usual_probe)
    csv '
        of("gflops") < share * gflops || of("triad_gbps") < share * triad {
            name = FILENAME
            sub(/\/probe.csv$/, "", name)
            sub(/.*\//, "", name)
            if (!said[name]++) print name
        }' share=$undisturbed_share gflops="${usual%%$'\t'*}" triad="${usual##*$'\t'}" "$out"/runs/*/probe.csv
}

# undisturbed_of RUN: the steps.csv of RUN's repeats that count, one a line: those that were not disturbed if
# they are at least half, otherwise all of them, and before them the line "disturbed".
undisturbed_of() {
    local repeat all=0 name
    local -a good=() every=()
    for repeat in "$out/runs/$1-"*/steps.csv; do
        name=$(basename "$(dirname "$repeat")")
        all=$((all + 1))
        every+=("$repeat")
        grep -qxF "$name" "$out/disturbed.txt" 2>/dev/null || good+=("$repeat")
    done
    if ((2 * ${#good[@]} >= all)); then
        printf '%s\n' "${good[@]}"
    else
        printf '%s\n' disturbed "${every[@]}"
    fi
}

# Repeats what was disturbed, each run up to twice and `retries` runs in all, and writes what stays so to
# disturbed.txt.
repeat_disturbed() {
    local pass name names
    for pass in 1 2; do
        names=$(disturbed_runs | awk -v most="$retries" 'NR <= most')
        [[ -n $names ]] || break
        begin_section "speed: $(wc -l <<<"$names") disturbed runs once more"
        last_probe=
        again=1
        for name in $names; do
            measure_run "$name" </dev/null
            retries=$((retries - 1))
        done
        again=0
    done
    disturbed_runs >"$out/disturbed.txt"
}
