#!/usr/bin/env bash
# ablation.sh: the ladder from DataParallel to DistributedDataParallel: what each ingredient is worth, through
# memory and over an emulated slow link. Needs nothing but a Debian or Ubuntu: it installs (as root or with
# --install), builds, runs. Some minutes.
#
# Writes ladder.csv, trainers.csv, ladder.txt and ladder.svg. The exit status is 0 only if all rungs, train_dp
# and train_ddp have trained the same weights, bit for bit; 1 if not or if a run failed; 2 for usage or set-up.
# The rungs are bench/ladder/rungs.c. Without gnuplot there is no figure.
set -euo pipefail
export LC_ALL=C

here=$PWD
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source bench/setup.sh

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
  --install           install missing packages with sudo (root does so unasked)
  --bin DIR           use the programs in DIR, build nothing
  --help              this text
END
}

fail_usage() {
    setup_say "error: $1"
    setup_say "bench/ablation.sh --help shows the options"
    exit 2
}

quick=0 install=0 world=2 links=10gbe rounds="" steps=4 out=bench/out-ladder bin=""
model=mlp hidden=512,512,512,512,512,512,512,512 data=synthetic:1x28x28:10@4096 batch=256 cap=1
while [[ $# -gt 0 ]]; do
    case $1 in
    --quick) quick=1 ;;
    --install) install=1 ;;
    --help | -h) usage || exit 1; exit 0 ;;
    --world | --link | --model | --hidden | --data | --global-batch | --bucket-cap-mb | --rounds | --steps | \
        --out | --bin)
        [[ $# -ge 2 ]] || fail_usage "$1 needs a value"
        case $1 in
        --world) world=$2 ;;
        --link) links=$2 ;;
        --model) model=$2 ;;
        --hidden) hidden=$2 ;;
        --data) data=$2 ;;
        --global-batch) batch=$2 ;;
        --bucket-cap-mb) cap=$2 ;;
        --rounds) rounds=$2 ;;
        --steps) steps=$2 ;;
        --out) out=$(cd "$here" && realpath -m "$2") ;;
        --bin) bin=$(cd "$here" && realpath -m "$2") ;;
        esac
        shift
        ;;
    *) fail_usage "unknown option $1" ;;
    esac
    shift
done
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
if [[ -n $(ls -A "$out" 2>/dev/null) && ! -f $out/commands.txt ]]; then
    fail_usage "--out $out: exists, and not from ablation.sh; nothing was touched"
fi
mkdir -p "$out" || exit 2
rm -rf "$out/runs" "$out/plots" "$out"/ladder.{csv,txt,svg} "$out"/trainers.csv
mkdir -p "$out/runs" "$out/plots"
: >"$out/commands.txt"

interrupted() {
    trap - INT TERM
    setup_say "interrupted; kept: the runs that were finished, in $out/runs"
    exit "$1"
}
trap 'interrupted 130' INT
trap 'interrupted 143' TERM

# run NAME COMMAND...: its output is in runs/NAME.txt; what it says on stderr goes on to the reader.
run() {
    local name=$1
    shift
    printf '%q ' "$@" >>"$out/commands.txt"
    echo >>"$out/commands.txt"
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "$@" >"$out/runs/$name.txt" 2>"$out/runs/$name.err" && return 0
    cat "$out/runs/$name.txt" >&2
    tail -n 20 "$out/runs/$name.err" >&2
    setup_say "error: this run failed: $(tail -n 1 "$out/commands.txt")"
    return 1
}

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
    link+=(--save "$out/runs/$name" --out "$out/runs/$name.d")
    if [[ $program == train_dp ]]; then
        run "$name" "$bin/train_dp" --devices "$world" "${trainer[@]}" "${link[@]}" || return 1
    else
        run "$name" "${ranks[@]}" --bind cores "$bin/train_ddp" --sampler blocked --normalize global \
            --bucket-cap-mb "$cap" "${trainer[@]}" "${link[@]}" || return 1
    fi
    sed -n "s/.*\"step_ms_p50\": \([0-9.]*\).*/$program,$2,\1/p" "$out/runs/$name.d/summary.json" \
        >>"$out/runs/trainers-$3.csv"
}

# climb NUMBER: the ladder over network NUMBER, between two runs of each trainer.
climb() {
    local link=() status=0
    [[ ${networks[$1]} == memory ]] || link=(--link "${networks[$1]}")
    setup_say "the ladder over ${networks[$1]}: $total steps of train_dp, train_ddp and ten rungs, and the trainers again"
    train train_dp 1 "$1" && train train_ddp 1 "$1" || return 1
    run "ladder-$1" "${ranks[@]}" "$bin/bench_ladder" "${network[@]}" --bucket-cap-mb "$cap" \
        --rounds "$rounds" --steps "$steps" --warmup $warmup "${link[@]}" \
        --csv "$out/runs/ladder-$1.csv" --save "$out/runs/ladder-$1.safetensors" || status=1
    train train_dp 2 "$1" && train train_ddp 2 "$1" || return 1
    return $status
}

# beside RUNG PROGRAM NUMBER: a rung's step and weights next to the program that it stands for.
beside() {
    local same=equal file=$out/runs/$2-$3-1
    "$bin/compare_tensors" --bitwise "$file" "$out/runs/ladder-$3.safetensors" >/dev/null 2>&1 || same=DIFFER
    awk -F, -v rung="$1" -v program="$2" -v same=$same '
        FNR == NR { if ($1 == program) { sum += $3; n++ } next }
        $1 == rung { ms = $(NF - 5) + 0 }
        END { printf "%-14s %7.3f ms; %s %7.3f ms: %.3f times; weights %s\n",
                     rung, ms, program, sum / n, ms / (sum / n), same }' \
        "$out/runs/trainers-$3.csv" "$out/runs/ladder-$3.csv"
    [[ $same == equal ]]
}

# What the figure draws of a ladder: see ladder.gp.
waterfall() {
    awk -F, 'NR == 1 { print "row,rung,low_ms,high_ms,saved_ms,kind"; next }
        { ms = $(NF - 5); saved = $(NF - 2) }
        NR == 2 { printf "1,%s,0,%s,0,first\n", $1, ms; next }
        { printf "%d,%s,%.6f,%.6f,%s,%s\n", NR - 1, $1, saved < 0 ? ms + saved : ms, saved < 0 ? ms : ms + saved,
                 saved, saved < 0 ? "takes" : "saves" }
        END { printf "%d,DDP,0,%s,0,last\n", NR, ms }' "$1"
}

draw() {
    command -v gnuplot >/dev/null || {
        setup_say "there is no gnuplot: no figure; the numbers are in $out/ladder.csv"
        return 0
    }
    local i
    cp bench/plots/style.gp bench/ladder/ladder.gp "$out/plots"
    for i in "${!networks[@]}"; do waterfall "$out/runs/ladder-$i.csv" >"$out/plots/ladder-$((i + 1)).csv"; done
    {
        printf 'panels = %d\narray networks[panels]\n' ${#networks[@]}
        for i in "${!networks[@]}"; do
            printf 'networks[%d] = "%s%s"\n' $((i + 1)) "${networks[$i]/memory/through memory}" \
                "$([[ ${networks[$i]} == memory ]] || echo ", emulated")"
        done
    } >"$out/plots/settings.gp"
    (cd "$out" && gnuplot plots/ladder.gp) >"$out/plots/ladder.log" 2>&1 || true
    [[ -s $out/plots/ladder.log ]] || return 0
    cat "$out/plots/ladder.log" >&2
    setup_say "error: the figure ladder.svg was not drawn as it should be"
    return 1
}

status=0 begun=$SECONDS
echo "program,turn,step_ms_p50,network" >"$out/trainers.csv"
for i in "${!networks[@]}"; do
    climb "$i" || status=1
    [[ -s $out/runs/ladder-$i.csv ]] || exit 1
    table=$out/runs/ladder-$i.txt
    beside "kept threads" train_dp "$i" >>"$table" || status=1
    beside overlap train_ddp "$i" >>"$table" || status=1
    echo >>"$table"
    tee -a "$out/ladder.txt" <"$table"
    sed "s/$/,\"${networks[$i]}\"/" "$out/runs/trainers-$i.csv" >>"$out/trainers.csv"
    awk -v first="$i" 'NR > 1 || first == 0' "$out/runs/ladder-$i.csv" >>"$out/ladder.csv"
done
draw || status=1
setup_say "the tables: $out/ladder.txt, $out/ladder.csv; the figure: $out/ladder.svg ($((SECONDS - begun)) s)"
exit $status
