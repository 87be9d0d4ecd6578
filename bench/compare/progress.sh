# progress.sh: what is done, how much is left and how long that takes, and what an interrupted command
# keeps. Sourced before runs.sh; all runs are counted before the first one starts (plan), and
# timed by kind: "speed-mlp" are the runs whose names begin so.
#
# On a terminal one line at the bottom is drawn anew with every run; elsewhere each section gets one line.

declare -A planned=() finished=() spent_ms=() # by kind
planned_runs=0 finished_runs=0 found_runs=0 all_spent_ms=0
planning=0    # 1: runs are counted, and none is started
live=0        # 1: on a terminal, what a run says on stderr is seen and not kept
section=      # what is being done, for the line
current_run=  # the name of the current run
bar_drawn=0

clear_bar() {
    [[ $bar_drawn == 0 ]] || printf '\r\033[K' >&2
    bar_drawn=0
}

say() {
    [[ $planning == 0 ]] || return 0
    clear_bar
    printf '%s\n' "$*" >&2
}

# kind_of NAME: sets $run_kind.
kind_of() {
    local rest=${1#*-}
    run_kind=${1%%-*}-${rest%%-*}
}

plan_run() {
    kind_of "$1"
    planned[$run_kind]=$((${planned[$run_kind]:-0} + 1))
    planned_runs=$((planned_runs + 1))
}

run_has_ended() { # NAME MILLISECONDS
    kind_of "$1"
    finished[$run_kind]=$((${finished[$run_kind]:-0} + 1))
    spent_ms[$run_kind]=$((${spent_ms[$run_kind]:-0} + $2))
    finished_runs=$((finished_runs + 1))
    all_spent_ms=$((all_spent_ms + $2))
}

# A run that an interrupted call left: it takes no time, and says nothing of how long others take.
run_was_there() { # NAME
    has_bar || say "kept from before: $1"
    kind_of "$1"
    planned[$run_kind]=$((${planned[$run_kind]:-0} - 1))
    finished_runs=$((finished_runs + 1))
    found_runs=$((found_runs + 1))
}

# "about 1:20 left", by the means of the runs so far: of the same kind, or of all while there is none.
time_left() {
    local key n left=0
    ((finished_runs > found_runs)) || return 0
    for key in "${!planned[@]}"; do
        n=$((planned[$key] - ${finished[$key]:-0}))
        if [[ -n ${finished[$key]:-} ]]; then
            left=$((left + n * spent_ms[$key] / finished[$key]))
        else
            left=$((left + n * all_spent_ms / (finished_runs - found_runs)))
        fi
    done
    printf ', about %d:%02d left' $((left / 60000)) $((left / 1000 % 60))
}

# On a terminal, but where a run writes there itself.
has_bar() {
    [[ -t 2 && $live == 0 ]]
}

# begin_section WHAT: says what begins now.
begin_section() {
    section=$1
    has_bar || say "$1 ($finished_runs of $planned_runs runs done$(time_left))"
}

draw_bar() { # RUN
    local line cells=16 full columns
    has_bar || return 0
    full=$((planned_runs > 0 ? cells * finished_runs / planned_runs : 0))
    printf -v line '%*s' "$full" ''
    printf -v line '[%-*s] %d/%d runs%s: %s (%s)' "$cells" "${line// /=}" "$finished_runs" "$planned_runs" \
        "$(time_left)" "$section" "$1"
    columns=$(tput cols 2>/dev/null) || columns=80
    printf '\r\033[K%s' "${line:0:columns-1}" >&2
    bar_drawn=1
}

# Ctrl-C: the run that was cut off goes, whole ones stay.
interrupted() { # STATUS
    local kept
    trap - INT TERM
    planning=0
    say "interrupted after $finished_runs of $planned_runs runs; there is no report"
    [[ -z $current_run ]] || drop_run "$current_run"
    if [[ $finished_runs -gt 0 ]]; then
        say "kept: what was finished, in $out/runs; the commands are in $out/commands.txt"
        say "to go on: $asked$([[ $resume == 1 ]] || echo " --resume")"
        for kept in summary.csv equivalence.csv; do
            [[ ! -s $out/$kept ]] || [[ $(wc -l <"$out/$kept") -lt 2 ]] || say "kept: $out/$kept, of what was finished"
        done
    else
        say "kept: what was built; no run was finished"
    fi
    exit "$1"
}
