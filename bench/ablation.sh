#!/usr/bin/env bash
# ablation.sh: the ladder from DataParallel to DistributedDataParallel: what each ingredient is worth, through
# memory and over an emulated slow link. Needs nothing but a Debian or Ubuntu: it installs (as root or with
# --install), builds, runs. Some minutes.
#
# The first rung starts new threads in each forward, as PyTorch's DataParallel does; train_dp keeps its threads, so that
# its step is the second rung's. The last rung's is train_ddp's.
#
# Writes ladder.csv, rounds.csv, trainers.csv, ladder.txt, ladder.svg, section.md and section.html, which
# bench/compare.sh's report brings in. The exit status is 0 only if all rungs, train_dp and train_ddp have trained
# the same weights, bit for bit; 1 if not or if a run failed; 2 for usage or set-up. The rungs are
# bench/ladder/rungs.c. Without gnuplot there is no figure.
set -euo pipefail
export LC_ALL=C

here=$PWD
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
cd "$root"
source bench/setup.sh
for part in compare/options compare/results compare/runs compare/section compare/disturbed ladder/table; do
    # shellcheck source=/dev/null
    source "bench/$part.sh"
done

usage() {
    cat <<END
usage: bench/ablation.sh [options]
  --quick             fewer turns and rounds
  --world N           number of devices (default: 2)
  --link LIST         networks to emulate, besides the memory that is there (default: 10gbe; "" for
                      none): words like 10gbe or 25,5 (Gbit/s, microseconds)
  --model NAME        (default: mlp)
  --hidden N,N        (default: eight layers of 512)
  --data NAME|DIR     (default: synthetic:1x28x28:10@4096)
  --global-batch N    (default: 256)
  --bucket-cap-mb F   of the last two rungs and of train_ddp (default: 1)
  --turns N           each runs train_dp, train_ddp and the rungs (default: 12; with --quick 3)
  --rounds N          of a turn; each takes all rungs (default: 3; with --quick 2)
  --steps N           of a rung in a round, whose median counts (default: 8)
  --patience SECONDS  how long disturbed runs are made once more (default: 120; with --quick 10)
  --out DIR           where the results go (default: bench/out-ladder)
  --resume            go on with a call that was interrupted (the same options)
  --install           install missing packages with sudo (root does so unasked)
  --bin DIR           use the programs in DIR, build nothing
  --help              this text
END
}

quick=0 install=0 resume=0 world=2 links=10gbe turns="" rounds="" steps=8 patience="" out=bench/out-ladder bin=""
model=mlp hidden=512,512,512,512,512,512,512,512 data=synthetic:1x28x28:10@4096 batch=256 cap=1
declare -A flags=([--quick]=quick [--resume]=resume [--install]=install) paths=([--out]=out [--bin]=bin)
declare -A values=([--world]=world [--link]=links [--model]=model [--hidden]=hidden [--data]=data
    [--global-batch]=batch [--bucket-cap-mb]=cap [--turns]=turns [--rounds]=rounds [--steps]=steps
    [--patience]=patience)
read_options bench/ablation.sh "$@"
turns=${turns:-$((quick ? 3 : 12))} rounds=${rounds:-$((quick ? 2 : 3))} patience=${patience:-$((quick ? 10 : 120))}
for name in turns rounds steps; do need_number --$name "${!name}" 1 999999; done
need_number --patience "$patience" 0 999999
need_number --world "$world" 2 "$(most_devices)"
need_number --global-batch "$batch" 1 999999999
need_word --model "$model" "$(model_names)"
[[ $hidden =~ ^[1-9][0-9]{0,6}(,[1-9][0-9]{0,6})*$ ]] || fail_usage "--hidden ${hidden:0:80}: expected sizes like 512,512"
[[ $cap =~ ^[0-9]*[.]?[0-9]+$ ]] || fail_usage "--bucket-cap-mb ${cap:0:80}: expected a number of MB"
read -ra networks <<<"memory $links"
for link in "${networks[@]:1}"; do need_link --link "$link"; done
programs="train_dp train_ddp ddprun bench_ladder bench_probe compare_tensors"
# shellcheck disable=SC2086 # the programs are words
need_programs $programs
claim_results

[[ -n $bin ]] || {
    setup_require $install build 9<&-
    # shellcheck disable=SC2086 # the programs are words
    setup_build "$root" build $programs 9<&-
    bin=build/bin
}
open_section {ladder,rounds,trainers}.csv ladder.txt
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
kind=cpu planning=0 # for disturbed.sh: the runs are on CPU cores, and are made now

warmup=4
total=$((warmup + rounds * steps))
network=(--model "$model" --data "$data" --global-batch "$batch" --lr 0.02)
[[ $model != mlp ]] || network+=(--hidden "$hidden")
trainer=(--no-shuffle --drop-last --schedule constant --steps "$total" --no-eval --log-every 1000000)
ranks=("$bin/ddprun" --nproc-per-node "$world")

# measure NAME N TURN COMMAND...: a run over network N between two probes; the first turn's weights are kept.
measure() {
    local name=$1-$2-$3 options=()
    [[ ${networks[$2]} == memory ]] || options=(--link "${networks[$2]}")
    [[ $3 != 1 ]] || options+=(--save "$out/runs/$name/weights")
    between_probes "$name" run_once "$name" "${@:4}" "${network[@]}" "${options[@]}"
}

# take_turn TURN N: both trainers and some rounds of the ladder over network N.
take_turn() {
    measure train_dp "$2" "$1" "$bin/train_dp" --devices "$world" --bind cores "${trainer[@]}" \
        --out "$out/runs/train_dp-$2-$1" || return 1
    measure train_ddp "$2" "$1" "${ranks[@]}" --bind cores "$bin/train_ddp" --sampler blocked --normalize global \
        --bucket-cap-mb "$cap" "${trainer[@]}" --out "$out/runs/train_ddp-$2-$1" || return 1
    measure ladder "$2" "$1" "${ranks[@]}" "$bin/bench_ladder" --bucket-cap-mb "$cap" --rounds "$rounds" \
        --steps "$steps" --warmup $warmup --csv "$out/runs/ladder-$2-$1/rounds.csv"
}

# All turns; the networks take part in each.
take_turns() {
    local turn n done=0 all=$((turns * ${#networks[@]}))
    for ((turn = 1; turn <= turns; turn++)); do
        for n in "${!networks[@]}"; do
            say_progress $done $all "turn $turn of $turns over ${networks[$n]}: $total steps of the trainers and all rungs"
            take_turn "$turn" "$n" || return 1
            done=$((done + 1))
        done
    done
    repeat_disturbed_runs "$patience"
}

# Writes the tables of network N, and ladder.txt's part of it. Fails if a trainer has other weights than the rungs.
tabulate() {
    local program weights table=$out/plots/ladder-$1 status=0
    round_rows "$1" >"$out/plots/rounds-$1.csv"
    trainer_rows "$1" >"$out/plots/trainers-$1.csv"
    ladder_rows "$1" >"$table.csv"
    for program in train_dp train_ddp; do
        weights=equal
        "$bin/compare_tensors" --bitwise "$out/runs/$program-$1-1/weights" "$out/runs/ladder-$1-1/weights" >/dev/null 2>&1 ||
            weights=DIFFER status=1
        trainer_sentence "$1" "$program" $weights
    done >"$table.trainers"
    { sed '/^ingredient /,$d' "$out/runs/ladder-$1-1/output.txt" && ladder_lines "$1" && rounds_sentence "$1" &&
        cat "$table.trainers" && echo; } >>"$out/ladder.txt"
    return $status
}

# together NAME: NAME.csv, of the tables of all networks; the first column of each row is the network.
together() {
    local n
    for n in "${!networks[@]}"; do
        awk -v name="$(called "$n" | sed 's/, / /; s/,/ /')" -v first="$n" 'NR > 1 { print name "," $0 }
            NR == 1 && first == 0 { print "network," $0 }' "$out/plots/$1-$n.csv"
    done >"$out/$1.csv"
}

# Writes the figure's data, and what it must know besides: how many networks and rows there are, and what they are called.
write_data() {
    local n
    printf 'panels = %d\narray networks[panels]\n' ${#networks[@]} >"$out/plots/settings.gp"
    for n in "${!networks[@]}"; do
        bar_rows "$n" >"$out/plots/bars-$((n + 1)).csv"
        printf 'networks[%d] = "%s"\nrows = %d\n' $((n + 1)) "$(called "$n")" \
            $(($(wc -l <"$out/plots/bars-$((n + 1)).csv") - 1)) >>"$out/plots/settings.gp"
    done
}

write_report() {
    local n status=0 sentences
    sentences=$(for n in "${!networks[@]}"; do ladder_sentence "$n"; done)
    echo "## From DP to DDP, one ingredient at a time"
    echo
    draw_section ladder "$sentences" || status=1
    echo
    echo "${sentences//$'\n'/$'\n\n'}"
    for n in "${!networks[@]}"; do
        echo
        echo "### $(called "$n")"
        echo
        ladder_table "$n"
        echo
        sed 's/^/- /' "$out/plots/ladder-$n.trainers"
        echo "- $(rounds_sentence "$n")"
    done
    cat <<END

Each ingredient is added to those above it. *saves* is the median, over the rounds that count, of the rung above minus
this one; a round takes all rungs in turn. The first rung starts new threads in each forward, as PyTorch's DataParallel
does; train_dp keeps its threads, so that its step is the second rung's. All rungs are compared with the first by their
weights' bytes. A turn is $rounds rounds and both trainers, each run between two probes of what all cores reach; where
a probe found another speed than usual, the run was made once more, for up to $patience seconds, and its rounds do not
count if that did not help.

END
    machine_facts "$(sed -n 3p "$out/runs/ladder-0-1/output.txt")" "Command: \`$asked\`"
    return $status
}

status=0 begun=$SECONDS
take_turns || exit 1
for n in "${!networks[@]}"; do tabulate "$n" || status=1; done
cat "$out/ladder.txt"
for name in ladder rounds trainers; do together $name; done
write_data
write_report >"$out/section.md" || status=1
write_section ladder
setup_say "the tables: $out/ladder.txt, $out/ladder.csv ($((SECONDS - begun)) s)"
setup_say "the section for the report: $out/section.html"
exit $status
