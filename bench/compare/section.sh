# section.sh: functions of the commands that add their own section to the report (bench/peers/compare.sh,
# bench/promises.sh): they make runs, collect the machine's facts and call bench/report. Sourced in the root of the
# checkout after runs.sh; uses out, the folder, resume, and asked, the command as typed.

# open_section FILE...: open_results (results.sh), and the messages of Ctrl-C.
open_section() {
    open_results facts.txt "$@"
    load=$(cut -d ' ' -f 1-3 /proc/loadavg)
    trap 'interrupted 130' INT
    trap 'interrupted 143' TERM
}

# plan FUNCTION...: counts the runs of these functions before the first one is made.
plan() {
    local one
    planned_runs=0 finished_runs=0 found_runs=0 spent_ms=0
    planning=1
    for one; do "$one"; done
    planning=0
}

# make_all FUNCTION: counts its runs, makes them, and then repeats the disturbed ones.
make_all() {
    plan "$1"
    "$1"
    repeat_disturbed_runs "${patience:-0}"
}

# each_round FUNCTION WHAT...: calls FUNCTION WHAT ROUND for each WHAT, alternately, in each of $rounds rounds
# (ablation.sh: $turns), and prints its progress.
each_round() {
    local round what all=${turns:-$rounds}
    for ((round = 1; round <= all; round++)); do
        for what in "${@:2}"; do
            begin_section "round $round of $all: $what"
            "$1" "$what" "$round"
        done
    done
}

# timed_run NAME COMMAND...: makes a run whose times are measured, between two probes.
timed_run() {
    between_probes "$1" run_once "$@"
}

# network_of MODEL: prints the options of a model; hidden are the layers of its mlp.
network_of() {
    echo --model "$1" $([[ $1 != mlp ]] || echo --hidden "$hidden")
}

# repeat_disturbed_runs SECONDS [LIST MAKE]: repeats disturbed runs (disturbed.sh) until there is none or the seconds
# are over. $out/disturbed.txt has the names of the remaining ones. LIST prints the runs to repeat (default: all
# disturbed ones), and MAKE makes one (default: with its kept command).
repeat_disturbed_runs() {
    local until=$((SECONDS + $1)) name names
    [[ $kind == cpu ]] || return 0
    again=1
    while disturbed_runs >"$out/disturbed.txt" && names=$(${2:-all_disturbed}) && [[ -n $names ]] && ((SECONDS < until)); do
        say "$(wc -l <<<"$names") disturbed runs once more, for up to $(setup_minutes $((until - SECONDS)))"
        last_probe=
        for name in $names; do
            ((SECONDS < until)) || break
            ${3:-make_once_more} "$name" </dev/null
        done
    done
    again=0
}

all_disturbed() {
    cat "$out/disturbed.txt"
}

make_once_more() { # NAME
    eval "between_probes $1 make_run $1 $(<"$out/runs/$1/command.txt")"
}

# Prints the number of this process's cores. (nproc would print OMP_NUM_THREADS.)
count_cores() {
    env -u OMP_NUM_THREADS nproc
}

# a_record: prints the config.json of one of the runs, if any has one.
a_record() {
    find "$out/runs" -name config.json | sort | sed -n 1p
}

# machine_facts [FACT...]: prints a list of the machine, its changeable state (clocks, other load, variables that affect
# the libraries), further facts, and the command. load is the machine's load at the beginning of the command.
machine_facts() {
    local fact governor=/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor variables
    echo "- Processor: $(lscpu | sed -n 's/^Model name: *//p' | head -n 1), $(count_cores) cores for this run"
    echo "- Memory: $(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo)"
    echo "- System: $(uname -sr), $(. /etc/os-release && echo "$PRETTY_NAME")"
    [[ -z $(a_record) ]] || echo "- Compiler: $(json compiler "$(a_record)" | sed 's/^[0-9]/gcc &/'), Release"
    [[ ! -r $bin/../CMakeCache.txt ]] ||
        echo "- Flags: $(sed -n 's/^CMAKE_C_FLAGS:[A-Z]*=//p; s/^CMAKE_C_FLAGS_RELEASE:[A-Z]*=//p' \
            "$bin/../CMakeCache.txt" | paste -sd ' ' - | sed 's/^ *//')"
    echo "- Cores: $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)," \
        "governor $([[ -r $governor ]] && cat $governor || echo "not visible"), load at the beginning: $load"
    variables=$(env | grep -E '^(OPENBLAS|OMP|GOTO|BLIS|MKL)_' | sort | paste -sd ' ' - || true)
    echo "- Variables that change the libraries: ${variables:-none}"
    echo "- Commit: $(commit_line); $(date -u '+%Y-%m-%d %H:%M UTC')"
    for fact in "$@" "Command: \`$asked\`"; do echo "- $fact"; done
}

commit_line() {
    local commit
    commit=$(git rev-parse --short HEAD 2>/dev/null) || { echo "none" && return; }
    echo "$commit$([[ -z $(git status --porcelain) ]] || echo ", with local changes")"
}

# write_report COMMAND [ARGUMENT...]: writes bench/report's pages for $out. Measurements, CSV files and exit statuses
# need no Python: without a Python that has Jinja2 there is no report.
write_report() {
    local python
    for python in python3 /usr/bin/python3; do
        ! "$python" -c 'import jinja2' 2>/dev/null || break
        python=
    done
    [[ -n $python ]] || { setup_say "no report: there is no Python with Jinja2 here (python3-jinja2)" && return 0; }
    PYTHONPATH=bench "$python" -B -m report "$1" "$out" "${@:2}" 9<&- || return 1
    [[ ! -s $out/section.html ]] || setup_say "the section for the report: $out/section.html"
}

# write_facts "KEY VALUE"... -- FACT...: writes facts.txt with the facts that no CSV file contains, and the machine's
# facts.
write_facts() {
    while [[ $1 != -- ]]; do printf '%s\n' "$1" && shift; done >"$out/facts.txt"
    shift
    machine_facts "$@" | sed 's/^- /machine /' >>"$out/facts.txt"
}
