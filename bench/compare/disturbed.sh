# disturbed.sh: detects other load on the machine. Sourced after runs.sh by compare.sh and by commands with their own
# section; uses bin, kind (only cpu is probed), planning and out.
# bench_probe runs before and after each measurement of a step's time (the probe between two runs belongs to both) and
# measures the rate of all cores together in matrix products and in memory accesses. On hardware shared with other
# tenants these rates vary. The reference is the rate found by most probes; a run is disturbed if one of its two probes
# found a rate far below or far above it (undisturbed_share). If more than half of a series (the repeats of one
# measurement) are disturbed, they are repeated while there is time (patience). No sentence is printed about a series of
# which most runs stay disturbed.

undisturbed_share=0.8
last_probe= # "threads,gflops,triad_gbps" of the latest probe

# take_probe THREADS: runs bench_probe; 0 threads: one on each core.
take_probe() {
    last_probe=$1,$("$bin/bench_probe" --threads "$1" 9<&- | sed 's/.*gflops=\([0-9.]*\) triad_gbps=\([0-9.]*\).*/\1,\2/')
}

# between_probes NAME COMMAND...: runs COMMAND, which makes the run NAME, between two probes. A run on one device is on
# the first core, and is compared with a probe of that core.
between_probes() {
    local name=$1 before threads=0
    shift
    if [[ $kind != cpu || $planning == 1 ]] || { [[ $again == 0 ]] && is_finished "$name"; }; then
        "$@"
        return
    fi
    [[ $name != *-single-* ]] || threads=1
    [[ $last_probe == $threads,* ]] || take_probe $threads
    before=$last_probe
    "$@" || return 1
    [[ -d $out/runs/$name ]] || return 0 # a failed run of --mine (mine.sh)
    take_probe $threads
    printf 'threads,gflops,triad_gbps\n%s\n%s\n' "$before" "$last_probe" >"$out/runs/$name/probe.csv"
}

# usual_probe THREADS: prints "gflops<TAB>triad_gbps", each the rate that has the most other probes within a tenth of it
# (the highest of such rates). Prints nothing if there was no probe.
usual_probe() {
    local column
    for column in gflops triad_gbps; do
        csv 'of("threads") == threads { print of(column) }' threads="$1" column=$column "$out"/runs/*/probe.csv |
            sort -g | awk '{ rate[NR] = $1 }
                END {
                    for (i = 1; i <= NR; i++) {
                        for (j = near = 0; ++j <= NR;) near += rate[j] >= 0.9 * rate[i] && rate[j] <= rate[i] / 0.9
                        if (near >= most) { most = near; usual = rate[i] }
                    }
                    if (NR) print usual
                }'
    done | paste -s -
}

# Prints the names of the disturbed runs, one per line.
disturbed_runs() {
    local usual threads
    [[ $kind == cpu && -n $(find "$out/runs" -name probe.csv | head -n 1) ]] || return 0
    for threads in 0 1; do
        usual=$(usual_probe $threads)
        csv 'function is_usual(rate, usual) { return rate >= share * usual && rate <= usual / share }
            of("threads") == threads && !(is_usual(of("gflops"), gflops) && is_usual(of("triad_gbps"), triad)) {
                name = FILENAME
                sub(/\/probe.csv$/, "", name)
                sub(/.*\//, "", name)
                if (!said[name]++) print name
            }' threads=$threads share=$undisturbed_share gflops="${usual%%$'\t'*}" triad="${usual##*$'\t'}" \
            "$out"/runs/*/probe.csv
    done
}

# undisturbed_of RUN: prints the steps.csv of RUN's repeats that count, one per line: the undisturbed ones if they are
# at least half; otherwise the line "disturbed" and then all.
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

# all_series: prints the names of all series (run names without the number of the repeat), one per line.
all_series() {
    # shellcheck disable=SC2012 # the names are ours
    ls "$out/runs" | sed -n 's/^\(speed\|link\|growth\|buckets\)\(-.*\)-[0-9]*$/\1\2/p' | sort -u
}

# Prints the runs to repeat, one per line: the disturbed ones of each series that has too few others (traced runs have
# no series); and when no series lacks any, all runs of each series whose times differ too much, although no probe shows
# a cause.
runs_to_repeat() {
    local series
    local -a counted lacking apart=()
    mapfile -t lacking < <(grep -E '^(overlap|timeline)-' "$out/disturbed.txt")
    while read -r series; do
        mapfile -t counted < <(undisturbed_of "$series")
        if [[ ${counted[0]:-} == disturbed ]]; then
            mapfile -t -O ${#lacking[@]} lacking < <(grep -x -- "$series-[0-9]*" "$out/disturbed.txt")
        elif are_far_apart "${counted[@]}"; then
            apart+=("$out/runs/$series-"*)
        fi
    done < <(all_series)
    [[ ${#lacking[@]} -gt 0 ]] || lacking=("${apart[@]##*/}")
    [[ ${#lacking[@]} == 0 ]] || printf '%s\n' "${lacking[@]}"
}

# are_far_apart STEPS.CSV...: true if the times of these runs differ too much for a row (summarize.awk).
are_far_apart() {
    [[ $(awk -v skip="$warm_up" -f bench/compare/summarize.awk "$@" | sed 's/.*,//') == 1 ]]
}
