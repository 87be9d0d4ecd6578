# progress.sh: shows the progress and the estimated time left, and reports the kept runs after an interrupt. Sourced
# before runs.sh; all runs are counted before the first one starts (plan).

planned_runs=0 finished_runs=0 found_runs=0 spent_ms=0
planning=0 # 1: runs are only counted
live=0 # 1: on a terminal, a run's stderr is shown and not kept
current_run=  # the name of the current run
has_said=0 # 1: say_interrupted has printed its lines

say() {
    [[ $planning == 1 ]] || printf '%s\n' "$*" >&2
}

run_has_ended() { # MILLISECONDS
    finished_runs=$((finished_runs + 1)) spent_ms=$((spent_ms + $1))
}

# A run kept from an interrupted call: it took no time, and does not count for the estimate of the time left.
run_was_there() { # NAME
    say "kept from before: $1"
    finished_runs=$((finished_runs + 1)) found_runs=$((found_runs + 1))
}

# begin_section WHAT: prints the section that begins; the time left is estimated from the mean of the runs so far.
begin_section() {
    local made=$((finished_runs - found_runs)) left=
    ((made == 0)) || left=", about $(setup_minutes $((spent_ms * (planned_runs - finished_runs) / made / 1000))) left"
    say "$1 ($finished_runs of $planned_runs runs done$left)"
}

# Ctrl-C or SIGTERM. Bash sends itself SIGINT again where it has ended a $(command): that must not interrupt these
# messages.
interrupted() { # STATUS
    trap '' INT TERM
    say_interrupted
    exit "$1"
}

# Removes the interrupted run, and prints how many are kept. The EXIT trap calls it too: where Ctrl-C ends a $(command),
# set -e ends this shell before the INT trap has run.
say_interrupted() {
    local kept
    [[ $has_said == 0 ]] || return 0
    has_said=1 planning=0
    say "interrupted after $finished_runs of $planned_runs runs; there is no report"
    [[ -z $current_run ]] || rm -rf -- "$out/runs/$current_run"
    if [[ $finished_runs -gt 0 ]]; then
        say "kept: the finished runs, in $out/runs; their commands are in $out/commands.txt"
        say "to go on: $asked$([[ $resume == 1 ]] || echo " --resume")"
        for kept in summary.csv equivalence.csv; do
            [[ ! -s $out/$kept ]] || [[ $(wc -l <"$out/$kept") -lt 2 ]] || say "kept: $out/$kept, of the finished runs"
        done
    else
        say "kept: the build; no run was finished"
    fi
}
