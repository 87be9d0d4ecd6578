# progress.sh: what is done, how long the rest takes, and what an interrupted command keeps. Sourced before runs.sh; all runs
# are counted before the first one starts (plan).

planned_runs=0 finished_runs=0 found_runs=0 spent_ms=0
planning=0    # 1: runs are counted, and none is started
live=0        # 1: on a terminal, what a run says on stderr is seen and not kept
current_run=  # the name of the current run
has_said=0    # 1: say_interrupted has

say() {
    [[ $planning == 1 ]] || printf '%s\n' "$*" >&2
}

run_has_ended() { # MILLISECONDS
    finished_runs=$((finished_runs + 1)) spent_ms=$((spent_ms + $1))
}

# A run that an interrupted call left: it takes no time, and says nothing of how long others take.
run_was_there() { # NAME
    say "kept from before: $1"
    finished_runs=$((finished_runs + 1)) found_runs=$((found_runs + 1))
}

# begin_section WHAT: says what begins now; the time that is left is by the mean of the runs so far.
begin_section() {
    local made=$((finished_runs - found_runs)) left=
    ((made == 0)) || left=", about $(setup_minutes $((spent_ms * (planned_runs - finished_runs) / made / 1000))) left"
    say "$1 ($finished_runs of $planned_runs runs done$left)"
}

# Ctrl-C or SIGTERM. Bash gives itself SIGINT again where that has ended a $(command): it must not end what is said here.
interrupted() { # STATUS
    trap '' INT TERM
    say_interrupted
    exit "$1"
}

# Removes the run that was cut off, and says which stay. The EXIT trap calls it, too: where Ctrl-C ends a $(command), set -e
# ends this shell before the INT trap has run.
say_interrupted() {
    local kept
    [[ $has_said == 0 ]] || return 0
    has_said=1 planning=0
    say "interrupted after $finished_runs of $planned_runs runs; there is no report"
    [[ -z $current_run ]] || rm -rf -- "$out/runs/$current_run"
    if [[ $finished_runs -gt 0 ]]; then
        say "kept: what was finished, in $out/runs; the commands are in $out/commands.txt"
        say "to go on: $asked$([[ $resume == 1 ]] || echo " --resume")"
        for kept in summary.csv equivalence.csv; do
            [[ ! -s $out/$kept ]] || [[ $(wc -l <"$out/$kept") -lt 2 ]] || say "kept: $out/$kept, of what was finished"
        done
    else
        say "kept: what was built; no run was finished"
    fi
}
