#!/usr/bin/env bash
# ladder_table.sh: what bench/ladder/table.sh makes of runs that are written by hand: rounds that were disturbed do
# not count, and where most were, or where a rung's rounds lie apart, nothing is said; whether a rung takes as long as
# its trainer; the sentences, and the figure's bars.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
for part in compare/runs compare/section ladder/table; do source "bench/$part.sh"; done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mkdir "$out/plots"
failures=0 turns=4 networks=(memory 10gbe)

# expect WHAT WANTED GOT
expect() {
    [[ $2 != "$3" ]] || return 0
    printf '%s:\n%s\nnot\n%s\n' "$1" "$3" "$2"
    failures=$((failures + 1))
}

# write TURN DP DDP KEPT FLAT OVERLAP: the trainers' and the rungs' milliseconds; the first rung's are always 50.
write() {
    local i round rungs=("fresh threads" "kept threads" "flat gradients" overlap) ms=(50 "${@:4}")
    mkdir -p "$out"/runs/{train_dp,train_ddp,ladder}-0-"$1"
    echo "  \"step_ms_p50\": $2," >"$out/runs/train_dp-0-$1/summary.json"
    echo "  \"step_ms_p50\": $3," >"$out/runs/train_ddp-0-$1/summary.json"
    echo weights,rung,says,devices,link,round,ms >"$out/runs/ladder-0-$1/rounds.csv"
    for i in 0 1 2 3; do
        for round in 1 2; do echo "equal,${rungs[i]},words,threads,memory,$round,${ms[i]}"; done
    done >>"$out/runs/ladder-0-$1/rounds.csv"
}
tables() { # DISTURBED RUN...
    printf '%s\n' "$@" >"$out/disturbed.txt"
    round_rows 0 >"$out/plots/rounds-0.csv"
    trainer_rows 0 >"$out/plots/trainers-0.csv"
    ladder_rows 0 >"$out/plots/ladder-0.csv"
}
# row RUNG: its median step, what it saves, how many rounds count, whether it was disturbed
row() {
    csv 'of("rung") == rung { printf "%.1f %s %d %d\n", of("ms_p50"), of("saved_ms_p50"), of("rounds"), of("disturbed") }' \
        rung="$1" "$out/plots/ladder-0.csv"
}

write 1 40 20 40 30 20
write 2 40 20 40 31 20
write 3 40 20 40 30 20.4
write 4 10 20 80 60 90 # disturbed
tables ladder-0-4
expect "kept threads" "40.0 10.000000 6 0" "$(row "kept threads")"
expect "the first saves nothing" "50.0 - 6 0" "$(row "fresh threads")"
expect "flat" "30.0 10.000000 6 0" "$(row "flat gradients")"
expect "rounds" "6 of 8 rounds count; the others were disturbed." "$(rounds_sentence 0)"
expect "train_dp" "kept threads takes 1.000 times train_dp's step, within 5 %: yes; weights equal" \
    "$(trainer_sentence 0 train_dp equal)"
expect "train_ddp" "overlap takes 1.000 times train_ddp's step, within 5 %: yes; weights DIFFER" \
    "$(trainer_sentence 0 train_ddp DIFFER)"
expect "sentence" "**through memory**: DataParallel takes 40.0 ms a step (50.0 with fresh threads), \
DistributedDataParallel 20.0. \
Milliseconds saved by: flat gradients 10.0, overlap 10.0; added by: nothing." "$(ladder_sentence 0)"
expect "bars" "row,rung,low_ms,high_ms,saved_ms,kind
1,fresh threads,0.000000,50.000000,0.000000,first
2,kept threads,40.000000,50.000000,10.000000,saves
3,flat gradients,30.000000,40.000000,10.000000,saves
4,overlap,20.000000,30.000000,10.000000,saves
5,DDP,0.000000,20.000000,0.000000,last" "$(bar_rows 0)"
expect "quartiles stand to the right" "|---|---|---:|---:|---:|---|" "$(ladder_table 0 | sed -n 2p)"
expect "of the link" "10gbe, emulated" "$(called 1)"

# A turn counts beside its trainer only if neither was disturbed; 1.06 is too far, and so is 0.94.
for turn in 1 2 3 4; do write $turn 40 20 42.4 30 18.8; done
tables train_dp-0-1
expect "too slow" "kept threads takes 1.060 times train_dp's step, within 5 %: no; weights equal" \
    "$(trainer_sentence 0 train_dp equal)"
expect "too fast" "overlap takes 0.940 times train_ddp's step, within 5 %: no; weights equal" \
    "$(trainer_sentence 0 train_ddp equal)"
expect "the ladder counts" "All 8 rounds count." "$(rounds_sentence 0)"
tables train_dp-0-1 train_dp-0-2 ladder-0-3
expect "most pairs were disturbed" "kept threads beside train_dp: disturbed, within 5 %: unknown; weights equal" \
    "$(trainer_sentence 0 train_dp equal)"

# A rung whose rounds lie apart is disturbed, and so is what the next one saves over it.
for turn in 3 4; do write $turn 40 20 40 30 20; done
write 1 40 20 40 25 20
write 2 40 20 40 40 20
tables none
expect "apart" "30.0 10.000000 8 0" "$(row "flat gradients")"
write 3 40 20 40 45 20
tables none
expect "further apart" "35.0 5.000000 8 1" "$(row "flat gradients")"
expect "and the next" "20.0 15.000000 8 1" "$(row overlap)"
expect "nothing is concluded of the last" "**through memory**: disturbed by other work; no conclusion." "$(ladder_sentence 0)"
expect "nothing is drawn as if it were sure" "disturbed disturbed disturbed" \
    "$(bar_rows 0 | sed -n '4,6s/.*,//p' | paste -sd ' ' -)"

# Most of all was disturbed.
for turn in 1 2 3 4; do write $turn 40 20 40 30 20; done
tables ladder-0-{1,2,4}
expect "all count then" "30.0 10.000000 8 1" "$(row "flat gradients")"
expect "and it is said" "6 of 8 rounds were disturbed: nothing is concluded." "$(rounds_sentence 0)"
expect "no sentence" "**through memory**: disturbed by other work; no conclusion." "$(ladder_sentence 0)"
expect "greyed" 4 "$(ladder_table 0 | grep -c '| disturbed |')"
expect "in the terminal, too" 4 "$(ladder_lines 0 | grep -c ' disturbed equal$')"
echo "ladder_table: $failures failures"
[[ $failures == 0 ]]
