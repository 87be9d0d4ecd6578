# mine.sh: --mine FILE: a user's wrapper or all-reduce (ddp/own/README.md), measured and compared as an additional
# strategy, "mine". Sourced by compare.sh after runs.sh. Its runs are those of the built-in strategy that it replaces
# (mine_like), with the option that loads FILE.
# A failed run of it is a row of failed.csv with its first error; the comparison continues. Repeats of a failed run are
# skipped; after a run that blocked for mine_patience seconds all further ones are.

mine=           # FILE; empty without --mine
mine_symbol=    # own_dp, own_ddp, own_fsdp or own_all_reduce: the table that FILE defines
mine_like=      # dp, ddp or fsdp
mine_options=() # with which the program loads FILE
mine_deadline=120 mine_patience=15 # seconds
mine_blocked= # name of the run that blocked
mine_comparisons=0 mine_broken=0
declare -A mine_failed=() # "PART:MODEL:WORLD": the error

# check_mine: determines the table that FILE defines; ends the script with the loader's error if it cannot be loaded.
check_mine() {
    local said
    [[ -n $mine ]] || return 0
    said=$(load_mine train_ddp --wrapper)
    case $said in
    *": defines own_dp: run it by train_dp --wrapper FILE") use_mine own_dp dp train_dp --wrapper ;;
    *": defines own_fsdp: run it by train_fsdp --wrapper FILE") use_mine own_fsdp fsdp train_fsdp --wrapper ;;
    *": defines own_all_reduce: run it by train_ddp --all-reduce FILE") use_mine own_all_reduce ddp train_ddp --all-reduce ;;
    *) use_mine own_ddp ddp train_ddp --wrapper ;;
    esac
}

# load_mine PROGRAM OPTION: prints the error with which the program rejects FILE, or nothing if it loads it.
load_mine() {
    { "$bin/$1" "$2" "$mine" --summary 2>&1 >/dev/null 9<&- || true; } | sed -n 's/^error: //p' | head -n 1
}

use_mine() { # SYMBOL LIKE PROGRAM OPTION
    local said
    said=$(load_mine "$3" "$4")
    [[ -z $said ]] || fail_usage "--mine $said"
    mine_symbol=$1 mine_like=$2 mine_options=("$4" "$mine")
    # A collective that a rank never joins must end with an error that names the rank.
    [[ $2 == dp ]] || mine_options+=(--timeout-s $mine_patience)
}

# keep_mine: copies FILE into the results. With --resume and a changed FILE, its earlier runs are made again.
keep_mine() {
    [[ -n $mine ]] || return 0
    if ! cmp -s -- "$mine" "$out/runs/mine/file"; then
        find "$out/runs" -path '*mine*/command.txt' -delete
    fi
    mkdir -p "$out/runs/mine"
    cp -- "$mine" "$out/runs/mine/file"
}

# is_mine_to_run NAME MODEL WORLD: false if this run is skipped because an earlier one failed.
is_mine_to_run() {
    local key=${1%%-*}:$2:$3
    [[ -z $mine_blocked || -n ${mine_failed[$key]:-} ]] ||
        mine_failed[$key]="not run, since $mine_blocked had not ended after $mine_patience seconds or more"
    [[ -n ${mine_failed[$key]:-} ]] || return 0
    run_was_there "$1"
    return 1
}

# mine_run_failed NAME MODEL WORLD SECONDS: records the error of the run, and keeps its output in runs/failed-NAME.
mine_run_failed() {
    local key=${1%%-*}:$2:$3 folder=$out/runs/$1 kept=runs/failed-$1 why
    why=$(why_failed "$folder")
    [[ $4 -lt $mine_deadline ]] || why="did not end within $mine_deadline seconds. $why"
    [[ $4 -lt $mine_patience ]] || mine_blocked=$1
    mine_failed[$key]=$why
    mkdir -p "$out/$kept"
    mv -- "$folder/output.txt" "$folder/log.txt" "$out/$kept"
    rm -r -- "$folder"
    say "yours: $2 on $3 devices failed (${1%%-*}): $why; all that it wrote: ${out#"$root/"}/$kept"
}

# why_failed FOLDER: prints the program's first error, else the launcher's report of the rank, in one line.
why_failed() {
    local why
    why=$(sed -nE 's/^(\[[0-9]+\]: )?error: //p' "$1/log.txt" | head -n 1)
    [[ -n $why ]] || why=$(sed -nE 's/^ddprun: (rank [0-9]+).* (died of [A-Z]+).* in (phase [a-z]+, step [0-9]+).*/\1 \2 in \3/p' \
        "$1/log.txt" | head -n 1)
    [[ -n $why ]] || why=$(grep -v '^[[:space:]]*$' "$1/log.txt" | tail -n 1)
    [[ -n $why ]] || why="it ended and did not say why"
    printf '%.300s' "$(tr -d '[:cntrl:]' <<<"$why")"
}

# has_failed STRATEGY PART MODEL WORLD: true if the strategy is FILE's, and this run of it failed.
has_failed() {
    [[ $1 == mine && -n ${mine_failed[$2:$3:$4]:-} ]]
}

# Prints the required comparison of FILE's gradients and weights with the built-in strategy's. An all-reduce may add in
# any order, which with more than two ranks rounds differently.
mine_sums() { # WORLD
    if [[ $mine_symbol == own_all_reduce && $1 -gt 2 ]]; then echo tolerance; else same_sums; fi
}

# equivalence_of_mine BATCH OPTION...: compares FILE with the built-in strategy, on each number of devices and with a
# batch that does not divide evenly; if it has buckets, also with small ones.
equivalence_of_mine() {
    local batch=$1 world
    shift
    [[ -n $mine ]] || return 0
    [[ $mine_like != fsdp ]] || probe fsdp:1 "$@" # no other comparison is made with it
    for world in 1 $worlds; do compare_mine "$world" "$@"; done
    [[ $mine_like != ddp ]] || compare_mine "${worlds%% *} cap=0.01" --bucket-cap-mb 0.01 "$@"
    compare_mine "3 uneven" "$@" --global-batch $((batch + 1))
}

# compare_mine RUN OPTION...: compares FILE's run with the built-in strategy's. RUN is the name without the strategy.
compare_mine() {
    local world=${1%% *} failures=$equivalence_failures all=$comparisons
    probe "mine:$1" "${@:2}"
    [[ $planning == 0 ]] || return 0
    if has_failed mine equivalence "$model" "$world"; then
        mine_comparisons=$((mine_comparisons + 1)) mine_broken=$((mine_broken + 1))
        return 0
    fi
    compare_runs "$mine_like:$1" "mine:$1" "$(mine_sums "$world")"
    mine_comparisons=$((mine_comparisons + comparisons - all))
    mine_broken=$((mine_broken + equivalence_failures - failures))
    comparisons=$all equivalence_failures=$failures
}

# Writes failed.csv: the failed runs of FILE.
list_failed() {
    local key part model world
    [[ ${#mine_failed[@]} -gt 0 ]] || return 0
    echo part,model,world_size,why
    for key in "${!mine_failed[@]}"; do
        IFS=: read -r part model world <<<"$key"
        printf '%s,%s,%s,"%s"\n' "$part" "$model" "$world" "${mine_failed[$key]//\"/\"\"}"
    done | sort -t , -k 1,2 -k 3n
}

mine_facts() {
    [[ -n $mine ]] || return 0
    cat <<END
mine $(basename -- "$mine" | tr -d '[:cntrl:]')
mine_symbol $mine_symbol
mine_like $mine_like
mine_comparisons $mine_comparisons
mine_broken $mine_broken
END
}

# mine_verdict: true if no run of FILE failed and all its comparisons held.
mine_verdict() {
    [[ -n $mine ]] || return 0
    if [[ $mine_broken == 0 ]]; then
        echo "Yours: held in all $mine_comparisons comparisons with train_$mine_like."
    else
        echo "Yours: BROKEN in $mine_broken of $mine_comparisons comparisons with train_$mine_like."
    fi
    [[ ${#mine_failed[@]} == 0 ]] || echo "Yours: these runs failed: ${!mine_failed[*]}."
    [[ $mine_broken == 0 && ${#mine_failed[@]} == 0 ]]
}
