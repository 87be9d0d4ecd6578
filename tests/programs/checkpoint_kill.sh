#!/bin/sh
# checkpoint_kill.sh BIN_DIR [KILLS]: a run that is killed with SIGKILL at random moments and resumed each
# time ends with the bits of one that never was: last and best checkpoint, and the rows of steps.csv.
#
# The moments follow from a fixed seed, as far as a clock allows. Every attempt is left alone until it has
# done a step of its own, so that the whole makes progress. KILLS (10) are shared by one device, two ranks,
# and two ranks with a hook that carries state.
. "$(dirname "$0")/checks.sh"
kills=${2:-10}
export OMP_NUM_THREADS=1

fail() {
    echo "FAILED: $*"
    exit 1
}

# The n-th of a fixed series of pauses, 0 to 0.08 s.
pause() { awk -v n="$1" 'BEGIN { srand(n); rand(); printf "%.3f", 0.08 * rand() }'; }

alive() { kill -0 "$1" 2>/dev/null; }

# until_line PATTERN FILE PID: waits until the file has such a line, or the process is over.
until_line() {
    tries=0
    until grep -q "$1" "$2" 2>/dev/null || ! alive "$3"; do
        tries=$((tries + 1))
        [ "$tries" -lt 3000 ] || fail "no line '$1' in a minute: $(cat err.txt)"
        sleep 0.02
    done
}

same_run() { # NAME: the folder NAME-killed is like the folder NAME
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
        alive "$pid" || break # a fast machine is done before all kills are
        kill -9 "$pid"
        wait "$pid" 2>/dev/null || true
        wanted=$((wanted - 1))
        killed=$((killed + 1))
        ! grep -q 'resumed .* at step' err.txt || resumed=$((resumed + 1))
    done
    "$@" >out.txt 2>err.txt || fail "$*: $(cat err.txt)"
    same_run "$name"
}

# The pid of the last rank that the launcher has started.
last_rank() {
    for child in $(cat "/proc/$1/task/$1/children"); do
        ! grep -qx train_ddp "/proc/$child/comm" || rank=$child
    done
    echo "$rank"
}

third=$((kills / 3))
killed_and_resumed single $((kills - 2 * third)) "$bin/train_single" --model convnet --epochs 10 --log-every 1
# The ranks die with ddprun: it is their parent.
killed_and_resumed ddp "$third" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --epochs 30 --log-every 1
# Both ranks have something to save: errors and factors of PowerSGD.
killed_and_resumed hook "$third" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --epochs 30 --log-every 1 \
    --comm-hook powersgd --powersgd-start 100

# One launcher that restarts all ranks whenever one of them is killed.
set -- "$bin/ddprun" --nproc-per-node 2 --max-restarts 2 "$bin/train_ddp" --epochs 30 --log-every 1
rm -rf out.txt ddp-killed
"$@" --out ddp-killed --save-every 4 --resume auto >out.txt 2>err.txt &
launcher=$!
until_line '^step=' out.txt "$launcher"
for restart in 1 2; do
    sleep "$(pause "$restart")"
    kill -9 "$(last_rank "$launcher")" && killed=$((killed + 1))
    until_line "restart $restart of 2" err.txt "$launcher"
    until_line 'resumed .* at step' err.txt "$launcher"
done
wait "$launcher" || fail "$*: $(cat err.txt)"
resumed=$((resumed + $(grep -c 'resumed .* at step' err.txt)))
same_run ddp
[ "$resumed" -ge $((kills / 2)) ] || fail "only $resumed of $killed runs had been resumed: too little was tested"
echo "checkpoint_kill: killed $killed times, $resumed of these runs had been resumed; the same bits"
