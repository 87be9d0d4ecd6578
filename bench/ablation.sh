#!/usr/bin/env bash
# ablation.sh: the ladder from DataParallel to DistributedDataParallel: the time that each ingredient saves, through
# memory and over an emulated slow link. Needs only Debian or Ubuntu: it installs packages (as root or with
# --install), builds and runs. Takes some minutes.
#
# usage: bench/ablation.sh [options]
#   --quick             fewer turns and rounds
#   --world N           number of devices (default: 2)
#   --link LIST         networks to emulate, besides the memory that is there (default: 10gbe; "" for
#                       none): words like 10gbe or 25,5 (Gbit/s, microseconds)
#   --model NAME        (default: mlp)
#   --hidden N,N        (default: eight layers of 512)
#   --data NAME|DIR     (default: synthetic:1x28x28:10@4096)
#   --global-batch N    (default: 256)
#   --bucket-cap-mb F   of the last two rungs and of train_ddp (default: 1)
#   --turns N           each runs train_dp, train_ddp and the rungs (default: 12; with --quick 3)
#   --rounds N          of a turn; each takes all rungs (default: 3; with --quick 2)
#   --steps N           of a rung in a round, whose median counts (default: 8)
#   --patience SECONDS  how long disturbed runs are made once more (default: 120; with --quick 10)
#
# The first rung starts new threads in each forward, as PyTorch's DataParallel does; train_dp keeps its threads, so that
# its step is the second rung's. The last rung's is train_ddp's.
#
# Writes ladder.csv, ladder.txt, ladder.svg, section.md and section.html, which
# bench/compare.sh's report brings in. The exit status is 0 only if all rungs, train_dp and train_ddp have trained
# the same weights, bit for bit; 1 if not or if a run failed; 2 for usage or set-up. The rungs are
# bench/ladder/rungs.c. Without gnuplot there is no figure.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/compare/begin.sh"

world=2 link=10gbe steps=8 out=bench/out-ladder
model=mlp hidden=512,512,512,512,512,512,512,512 data=synthetic:1x28x28:10@4096 global_batch=256 bucket_cap_mb=1
read_options bench/ablation.sh "$@"
turns=${turns:-$((quick ? 3 : 12))} rounds=${rounds:-$((quick ? 2 : 3))} patience=${patience:-$((quick ? 10 : 120))}
for name in turns steps; do need_number --$name "${!name}" 1 999999; done
need_number --world "$world" 2 "$(most_devices)"
need_number --global-batch "$global_batch" 1 999999999
need_word --model "$model" "$(model_names)"
[[ $hidden =~ ^[1-9][0-9]{0,6}(,[1-9][0-9]{0,6})*$ ]] || fail_usage "--hidden ${hidden:0:80}: expected sizes like 512,512"
[[ $bucket_cap_mb =~ ^[0-9]*[.]?[0-9]+$ ]] || fail_usage "--bucket-cap-mb ${bucket_cap_mb:0:80}: expected a number of MB"
read -ra networks <<<"memory $link"
for link in "${networks[@]:1}"; do need_link --link "$link"; done
get_ready train_dp train_ddp ddprun bench_ladder bench_probe compare_tensors
open_section ladder.csv ladder.txt
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

warmup=4
total=$((warmup + rounds * steps))

# measure NAME N TURN OPTION...: runs `command` over network N; keeps the weights of the first turn.
# shellcheck disable=SC2046 # options are words
measure() {
    local name=$1-$2-$3
    [[ ${networks[$2]} == memory ]] || command+=(--link "${networks[$2]}")
    [[ $3 != 1 ]] || command+=(--save "$out/runs/$name/weights")
    timed_run "$name" "${command[@]}" $(network_of "$model") --data "$data" --global-batch "$global_batch" --lr 0.02 "${@:4}"
}

# take_turn N:NETWORK TURN: runs both trainers and $rounds rounds of the ladder over network N.
take_turn() {
    local program n=${1%%:*} turn=$2
    for program in dp ddp; do
        start $program "$world"
        [[ $program == dp ]] || command+=(--normalize global --bucket-cap-mb "$bucket_cap_mb")
        measure train_$program "$n" "$turn" --no-shuffle --drop-last --schedule constant --steps "$total" --no-eval \
            --log-every 1000000 --out "$out/runs/train_$program-$n-$turn"
    done
    command=("$bin/ddprun" --nproc-per-node "$world" "$bin/bench_ladder" --bucket-cap-mb "$bucket_cap_mb")
    measure ladder "$n" "$turn" --rounds "$rounds" --steps "$steps" --warmup $warmup --csv "$out/runs/ladder-$n-$turn/rounds.csv"
}

# Each turn measures all networks.
take_turns() {
    local n numbered=()
    for n in "${!networks[@]}"; do numbered+=("$n:${networks[$n]}"); done
    each_round take_turn "${numbered[@]}"
}

# same_weights N PROGRAM: prints "equal" if a trainer's weights over network N are bit-identical to the rungs', else
# DIFFER.
same_weights() {
    "$bin/compare_tensors" --bitwise "$out/runs/$2-$1-1/weights" "$out/runs/ladder-$1-1/weights" >/dev/null 2>&1 &&
        echo equal || echo DIFFER
}

begun=$SECONDS
make_all take_turns
status=0 facts=("networks ${networks[*]}" "turns $turns" "rounds $rounds" "patience $patience")
for n in "${!networks[@]}"; do
    while IFS= read -r line; do facts+=("about-$n $line"); done < <(sed '/^ingredient /,$d' "$out/runs/ladder-$n-1/output.txt")
    for program in train_dp train_ddp; do
        weights=$(same_weights "$n" $program)
        [[ $weights == equal ]] || status=1
        facts+=("weights-$n-$program $weights")
    done
done
write_facts "${facts[@]}" -- "$(sed -n 3p "$out/runs/ladder-0-1/output.txt")"
write_report ladder >"$out/ladder.txt" || status=1
cat "$out/ladder.txt"
setup_say "the tables: $out/ladder.txt, $out/ladder.csv ($((SECONDS - begun)) s)"
exit $status
