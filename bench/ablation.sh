#!/usr/bin/env bash
# ablation.sh: the ladder from DataParallel to DistributedDataParallel: what each ingredient is worth, through
# memory and over an emulated slow link. Needs nothing but a Debian or Ubuntu: it installs (as root or with
# --install), builds, runs. Some minutes.
#
# Writes ladder.csv, trainers.csv, ladder.txt, ladder.svg, section.md and section.html, which bench/compare.sh's
# report brings in. The exit status is 0 only if all rungs, train_dp and train_ddp have trained
# the same weights, bit for bit; 1 if not or if a run failed; 2 for usage or set-up. The rungs are
# bench/ladder/rungs.c. Without gnuplot there is no figure.
set -euo pipefail
export LC_ALL=C

here=$PWD
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source bench/setup.sh
for part in compare/runs compare/options compare/section; do
    # shellcheck source=/dev/null
    source "bench/$part.sh"
done

usage() {
    cat <<END
usage: bench/ablation.sh [options]
  --quick             fewer rounds
  --world N           number of devices (default: 2)
  --link LIST         networks to emulate, besides the memory that is there (default: 10gbe; "" for
                      none): words like 10gbe or 25,5 (Gbit/s, microseconds)
  --model NAME        (default: mlp)
  --hidden N,N        (default: eight layers of 512)
  --data NAME|DIR     (default: synthetic:1x28x28:10@4096)
  --global-batch N    (default: 256)
  --bucket-cap-mb F   of the last two rungs and of train_ddp (default: 1)
  --rounds N          each takes all rungs (default: 40; with --quick 8)
  --steps N           of a rung in a round (default: 4)
  --out DIR           where the results go (default: bench/out-ladder)
  --resume            go on with a call that was interrupted (the same options)
  --install           install missing packages with sudo (root does so unasked)
  --bin DIR           use the programs in DIR, build nothing
  --help              this text
END
}

quick=0 install=0 resume=0 world=2 links=10gbe rounds="" steps=4 out=bench/out-ladder bin=""
model=mlp hidden=512,512,512,512,512,512,512,512 data=synthetic:1x28x28:10@4096 batch=256 cap=1
declare -A flags=([--quick]=quick [--resume]=resume [--install]=install) paths=([--out]=out [--bin]=bin)
declare -A values=([--world]=world [--link]=links [--model]=model [--hidden]=hidden [--data]=data
    [--global-batch]=batch [--bucket-cap-mb]=cap [--rounds]=rounds [--steps]=steps)
read_options bench/ablation.sh "$@"
rounds=${rounds:-$((quick ? 8 : 40))}
[[ $rounds =~ ^[1-9][0-9]{0,5}$ ]] || fail_usage "--rounds $rounds: expected a number from 1"
[[ $steps =~ ^[1-9][0-9]{0,5}$ ]] || fail_usage "--steps $steps: expected a number from 1"
[[ $world =~ ^[1-9][0-9]?$ && $world != 1 ]] || fail_usage "--world $world: expected a number from 2"
read -ra networks <<<"memory $links"

[[ -n $bin ]] || {
    setup_require $install build
    setup_build "$root" build train_dp train_ddp ddprun bench_ladder compare_tensors
    bin=build/bin
}
open_results commands.txt
rm -f "$out"/ladder.{csv,txt} "$out"/trainers.csv "$out"/plots/trainers-*.csv
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
live=1 deadline=3600 # a ladder takes minutes and shows how far it is

warmup=4
total=$((warmup + rounds * steps))
network=(--model "$model" --data "$data" --global-batch "$batch" --lr 0.02)
[[ $model != mlp ]] || network+=(--hidden "$hidden")
trainer=("${network[@]}" --no-shuffle --drop-last --schedule constant --steps "$total" --no-eval
    --log-every 1000000)
ranks=("$bin/ddprun" --nproc-per-node "$world")

# train PROGRAM TURN NUMBER: train_dp or train_ddp over network NUMBER; trainers.csv gets its median step.
train() {
    local program=$1 name=$1-$3-$2 link=()
    [[ ${networks[$3]} == memory ]] || link=(--link "${networks[$3]}")
    link+=(--save "$out/runs/$name/weights" --out "$out/runs/$name")
    if [[ $program == train_dp ]]; then
        run_once "$name" "$bin/train_dp" --devices "$world" "${trainer[@]}" "${link[@]}" || return 1
    else
        run_once "$name" "${ranks[@]}" --bind cores "$bin/train_ddp" --sampler blocked --normalize global \
            --bucket-cap-mb "$cap" "${trainer[@]}" "${link[@]}" || return 1
    fi
    sed -n "s/.*\"step_ms_p50\": \([0-9.]*\).*/$program,$2,\1/p" "$out/runs/$name/summary.json" \
        >>"$out/plots/trainers-$3.csv"
}

# climb NUMBER: the ladder over network NUMBER, between two runs of each trainer.
climb() {
    local link=() status=0
    [[ ${networks[$1]} == memory ]] || link=(--link "${networks[$1]}")
    local left=
    [[ $1 == 0 ]] || left=", about $(setup_minutes $(((SECONDS - begun) * (${#networks[@]} - $1) / $1))) left"
    setup_say "over ${networks[$1]} ($(($1 + 1)) of ${#networks[@]}$left): $total steps of ten rungs and the trainers"
    train train_dp 1 "$1" && train train_ddp 1 "$1" || return 1
    run_once "ladder-$1" "${ranks[@]}" "$bin/bench_ladder" "${network[@]}" --bucket-cap-mb "$cap" \
        --rounds "$rounds" --steps "$steps" --warmup $warmup "${link[@]}" \
        --csv "$out/runs/ladder-$1/ladder.csv" --save "$out/runs/ladder-$1/weights" || status=1
    train train_dp 2 "$1" && train train_ddp 2 "$1" || return 1
    return $status
}

# beside RUNG PROGRAM NUMBER: a rung's step and weights next to the program that it stands for.
beside() {
    local same=equal
    "$bin/compare_tensors" --bitwise "$out/runs/$2-$3-1/weights" "$out/runs/ladder-$3/weights" >/dev/null 2>&1 || same=DIFFER
    awk -F, -v rung="$1" -v program="$2" -v same=$same '
        FNR == NR { if ($1 == program) { sum += $3; n++ } next }
        $1 == rung { ms = $(NF - 5) + 0 }
        END { printf "%-14s %7.3f ms; %s %7.3f ms: %.3f times; weights %s\n",
                     rung, ms, program, sum / n, ms / (sum / n), same }' \
        "$out/plots/trainers-$3.csv" "$out/runs/ladder-$3/ladder.csv"
    [[ $same == equal ]]
}

# waterfall FILE: prints a ladder as the bars that ladder.gp draws.
waterfall() {
    awk -F, 'NR == 1 { print "row,rung,low_ms,high_ms,saved_ms,kind"; next }
        { ms = $(NF - 5); saved = $(NF - 2) }
        NR == 2 { printf "1,%s,0,%s,0,first\n", $1, ms; next }
        { printf "%d,%s,%.6f,%.6f,%s,%s\n", NR - 1, $1, saved < 0 ? ms + saved : ms, saved < 0 ? ms : ms + saved,
                 saved, saved < 0 ? "takes" : "saves" }
        END { printf "%d,DDP,0,%s,0,last\n", NR, ms }' "$1"
}

# Writes the figure's data, and what it must know besides: how many networks there are, and their names.
write_data() {
    local i
    printf 'panels = %d\narray networks[panels]\n' ${#networks[@]} >"$out/plots/settings.gp"
    for i in "${!networks[@]}"; do
        waterfall "$out/runs/ladder-$i/ladder.csv" >"$out/plots/ladder-$((i + 1)).csv"
        printf 'networks[%d] = "%s"\n' $((i + 1)) "$(called "$i")" >>"$out/plots/settings.gp"
    done
}

# called NUMBER: prints what a network is called in texts.
called() {
    [[ ${networks[$1]} == memory ]] && echo "through memory" || echo "${networks[$1]}, emulated"
}

# sentence NUMBER: says in a sentence which rungs save or cost more than a fiftieth of DP's step over network NUMBER.
sentence() {
    awk -F, -v network="$(called "$1")" '
        $1 == "kept threads" { dp = $(NF - 5) }
        NR > 3 { name[++n] = $1; saved[n] = $(NF - 2); ddp = $(NF - 5) }
        END {
            for (i = 1; i <= n; i++) {
                if (saved[i] > dp / 50) saves = saves sprintf("%s%s %.1f", saves ? ", " : "", name[i], saved[i])
                if (saved[i] < -dp / 50) costs = costs sprintf("%s%s %.1f", costs ? ", " : "", name[i], -saved[i])
            }
            printf "**%s**: DataParallel takes %.1f ms a step, DistributedDataParallel %.1f. ", network, dp, ddp
            printf "Milliseconds saved by: %s; added by: %s.\n", saves ? saves : "nothing", costs ? costs : "nothing"
        }' "$out/runs/ladder-$1/ladder.csv"
}

ladder_table() {
    awk -F, 'NR == 1 { print "| ingredient | | ms | saves | quartiles | bits |\n|---|---|---:|---:|---:|---|"; next }
        { saved = NR == 2 ? " | " : sprintf("%+.3f | %+.3f to %+.3f", $(NF - 2), $(NF - 3), $(NF - 1))
          split($0, says, "\"")
          printf "| %s | %s | %.3f | %s | %s |\n", $1, says[2], $(NF - 5), saved, $NF }' "$1"
}

write_report() {
    local i status=0
    echo "## From DP to DDP, one ingredient at a time"
    echo
    for i in "${!networks[@]}"; do
        sentence "$i"
        echo
    done
    draw_section ladder "$(for i in "${!networks[@]}"; do sentence "$i"; done)" || status=1
    for i in "${!networks[@]}"; do
        echo
        echo "### $(called "$i")"
        echo
        ladder_table "$out/runs/ladder-$i/ladder.csv"
        echo
        sed -n 's/.* ms; train_.*/- &/p' "$out/plots/ladder-$i.txt"
    done
    echo
    echo "Each ingredient is added to those above it. *saves* is the median, over $rounds rounds that take all rungs in"
    echo "turn, of the rung above minus this one. All rungs are compared with the first by their weights' bytes."
    echo
    machine_facts "$(sed -n 3p "$out/runs/ladder-0/output.txt")" "Command: \`$asked\`"
    return $status
}

status=0 begun=$SECONDS
echo "program,turn,step_ms_p50,network" >"$out/trainers.csv"
for i in "${!networks[@]}"; do
    climb "$i" || status=1
    [[ -s $out/runs/ladder-$i/ladder.csv ]] || exit 1
    table=$out/plots/ladder-$i.txt
    cp "$out/runs/ladder-$i/output.txt" "$table"
    beside "kept threads" train_dp "$i" >>"$table" || status=1
    beside overlap train_ddp "$i" >>"$table" || status=1
    echo >>"$table"
    tee -a "$out/ladder.txt" <"$table"
    sed "s/$/,\"${networks[$i]}\"/" "$out/plots/trainers-$i.csv" >>"$out/trainers.csv"
    awk -v first="$i" 'NR > 1 || first == 0' "$out/runs/ladder-$i/ladder.csv" >>"$out/ladder.csv"
done
write_data
write_report >"$out/section.md" || status=1
write_section ladder
setup_say "the tables: $out/ladder.txt, $out/ladder.csv ($((SECONDS - begun)) s)"
setup_say "the section for the report: $out/section.html"
exit $status
