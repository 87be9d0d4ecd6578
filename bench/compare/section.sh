# section.sh: what the commands share that add a section of their own to the report (bench/peers/compare.sh,
# bench/promises.sh): how they are interrupted, the machine's facts, and how bench/report is called. Sourced in
# the root of the checkout after runs.sh; uses out, the folder, resume, and asked, the command as it was typed.

# open_section FILE...: open_results (results.sh), and what Ctrl-C says.
open_section() {
    open_results facts.txt "$@"
    load=$(cut -d ' ' -f 1-3 /proc/loadavg)
    trap 'stop_here 130' INT
    trap 'stop_here 143' TERM
}

# stop_here STATUS: Ctrl-C says what is kept and how to go on.
stop_here() {
    trap - INT TERM
    echo "interrupted; kept: $(find "$out/runs" -name command.txt | wc -l) finished runs, in $out/runs" >&2
    echo "to go on: $asked$([[ $resume == 1 ]] || echo " --resume")" >&2
    exit "$1"
}

# say_progress DONE ALL WHAT: says what begins now, and how long the rest takes at the rate since $begun.
say_progress() {
    local left=
    (($1 == 0)) || left=", about $(setup_minutes $(((SECONDS - begun) * ($2 - $1) / $1))) left"
    echo "$3 ($1 of $2 done$left)" >&2
}

# repeat_disturbed_runs SECONDS: makes what a neighbour has disturbed (disturbed.sh) once more, by the command that
# each run has left, until there is no such run or the seconds are over. $out/disturbed.txt names those that remain.
repeat_disturbed_runs() {
    local until=$((SECONDS + $1)) name
    again=1
    while disturbed_runs >"$out/disturbed.txt" && [[ -s $out/disturbed.txt ]] && ((SECONDS < until)); do
        echo "$(wc -l <"$out/disturbed.txt") disturbed runs once more, for up to $(setup_minutes $((until - SECONDS)))" >&2
        last_probe=
        while ((SECONDS < until)) && read -r name; do
            eval "between_probes $name make_run $name $(<"$out/runs/$name/command.txt")" </dev/null || return 1
        done <"$out/disturbed.txt"
    done
    again=0
}

# The cores of this process. (nproc would take OMP_NUM_THREADS for them.)
count_cores() {
    env -u OMP_NUM_THREADS nproc
}

# a_record: the config.json of one of the runs, if any has one.
a_record() {
    find "$out/runs" -name config.json | sort | sed -n 1p
}

# machine_facts [FACT...]: the machine, what may change on it from one day to the next (clocks, other work, variables
# that change the libraries), and what is said besides, as a list. load is that of the machine when the command began.
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
    for fact; do echo "- $fact"; done
}

commit_line() {
    local commit
    commit=$(git rev-parse --short HEAD 2>/dev/null) || { echo "none" && return; }
    echo "$commit$([[ -z $(git status --porcelain) ]] || echo ", with local changes")"
}

has_python() {
    command -v python3 >/dev/null
}

# write_report COMMAND [ARGUMENT...]: what bench/report makes of $out. Measuring, CSV files and exit statuses need no Python: without
# one that has Jinja2 there is no report.
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

# write_facts "KEY VALUE"... -- FACT...: facts.txt, what a report must know and no CSV file has, and the machine's facts.
write_facts() {
    while [[ $1 != -- ]]; do printf '%s\n' "$1" && shift; done >"$out/facts.txt"
    shift
    machine_facts "$@" | sed 's/^- /machine /' >>"$out/facts.txt"
}
