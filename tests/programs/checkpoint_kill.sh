#!/bin/sh
# checkpoint_kill.sh BIN_DIR [KILLS]: a run that is killed (SIGKILL) at random moments and resumed each time ends with
# the bits of an uninterrupted run: the last and the best checkpoint, and the rows of steps.csv.
#
# The moments follow from a fixed seed, as far as clocks allow. An attempt is not killed before it has completed a step,
# so that the run progresses. The KILLS (10) are divided among one device, two ranks, and two ranks with a hook that has
# state.
. "$(dirname "$0")/checks.sh"
kills=${2:-10}
export OMP_NUM_THREADS=1

fail() {
    echo "FAILED: $*"
    exit 1
}

# Prints the n-th of a fixed series of pauses, 0 to 0.08 s.
pause() { awk -v n="$1" 'BEGIN { srand(n); rand(); printf "%.3f", 0.08 * rand() }'; }

alive() { kill -0 "$1" 2>/dev/null; }

# until_line PATTERN FILE PID: waits until the file has such a line, or the process has ended.
until_line() {
    tries=0
    until grep -q "$1" "$2" 2>/dev/null || ! alive "$3"; do
        tries=$((tries + 1))
        [ "$tries" -lt 3000 ] || fail "no line '$1' in a minute: $(cat err.txt)"
        sleep 0.02
    done
}

same_run() { # NAME: compares the folder NAME-killed with the folder NAME
    same "$1/last.safetensors" "$1-killed/last.safetensors"
    same "$1/best.safetensors" "$1-killed/best.safetensors"
    [ "$(cut -d, -f1-4 "$1/steps.csv")" = "$(cut -d, -f1-4 "$1-killed/steps.csv")" ] ||
        fail "$1: the rows of steps.csv differ"
    left=$(find "$1-killed" -name '*.tmp')
    [ -z "$left" ] || fail "left behind: $left"
}

killed=0 resumed=0
killed_and_resumed() { # NAME KILLS COMMAND...
    name=$1 wanted=$2
    shift 2
    "$@" --out "$name" >/dev/null 2>err.txt || fail "$*: $(cat err.txt)"
    set -- "$@" --out "$name-killed" --save-every 4 --resume auto
    while [ "$wanted" -gt 0 ]; do
        rm -f out.txt
        "$@" >out.txt 2>err.txt &
        pid=$!
        until_line '^step=' out.txt "$pid"
        sleep "$(pause "$killed")"
        alive "$pid" || break # completed before all kills
        kill -9 "$pid"
        wait "$pid" 2>/dev/null || true
        wanted=$((wanted - 1))
        killed=$((killed + 1))
        ! grep -q 'resumed .* at step' err.txt || resumed=$((resumed + 1))
    done
    "$@" >out.txt 2>err.txt || fail "$*: $(cat err.txt)"
    same_run "$name"
}

# Prints the pid of the rank that the launcher started last. Fails if the launcher has ended.
last_rank() {
    rank=
    for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        ! grep -qsx train_ddp "/proc/$child/comm" || rank=$child
    done
    [ -n "$rank" ] && echo "$rank"
}

third=$((kills / 3))
killed_and_resumed single $((kills - 2 * third)) "$bin/train_single" --model convnet --epochs 10 --log-every 1
# Killing ddprun also kills its ranks.
killed_and_resumed ddp "$third" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --epochs 30 --log-every 1
# Both ranks have state to save: errors and factors of PowerSGD.
killed_and_resumed hook "$third" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --epochs 30 --log-every 1 \
    --comm-hook powersgd --powersgd-start 100

# One launcher, which restarts all ranks after each kill of a rank.
set -- "$bin/ddprun" --nproc-per-node 2 --max-restarts 2 "$bin/train_ddp" --epochs 30 --log-every 1
rm -rf out.txt ddp-killed
"$@" --out ddp-killed --save-every 4 --resume auto >out.txt 2>err.txt &
launcher=$!
until_line '^step=' out.txt "$launcher"
for restart in 1 2; do
    sleep "$(pause "$restart")"
    if ! rank=$(last_rank "$launcher"); then
        ! alive "$launcher" || fail "the launcher has no rank train_ddp"
        break # completed before all kills
    fi
    kill -9 "$rank" && killed=$((killed + 1))
    until_line "restart $restart of 2" err.txt "$launcher"
    until_line 'resumed .* at step' err.txt "$launcher"
done
wait "$launcher" || fail "$*: $(cat err.txt)"
resumed=$((resumed + $(grep -c 'resumed .* at step' err.txt)))
same_run ddp
[ "$resumed" -ge $((kills / 2)) ] || fail "only $resumed of $killed runs had been resumed: too little was tested"
echo "checkpoint_kill: killed $killed times, $resumed of these runs had been resumed; the same bits"
