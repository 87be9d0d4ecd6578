#!/bin/sh
# ddprun_elastic.sh BIN: elastic jobs (--nnodes MIN:MAX), each node a ddprun on this machine: a node joins, a node is
# lost, a node leaves, fewer than MIN remain, node 0 is lost, a rank fails, a node waits for a place. Training continues
# from the newest checkpoint, bit for bit like a run that resumes from it with as many ranks. The cases run at the same
# time, each in its own folder. Every wait is bounded.
# shellcheck disable=SC2016 # the ranks expand what is quoted so
set -u
bin=$(cd "$1" && pwd) || exit 1
port=$((20000 + $$ % 400 * 25))
. "$(dirname "$0")/elastic_jobs.sh"
trap 'kill_all; rm -rf "$folder"' EXIT

complain() {
    echo "FAILED: $*"
    tail -n 30 err*
    exit 1
}
# ends NUMBER STATUS: waits for the ddprun of node NUMBER, which must end with STATUS.
ends() {
    eval "wait \$shell_$1" 2>/dev/null
    got=$?
    [ "$got" = "$2" ] || complain "$case: node $1: status $got, expected $2"
}
says() { grep -Eq -- "$2" "$1" || complain "$case: no line like '$2' in $1"; }
silent() { ! grep -Eq -- "$2" "$1" || complain "$case: a line like '$2' in $1"; }
begin() {
    case=$1
    port=$((port + 1))
    rm -f err_* out_*
}

# --- A node joins, another is lost

training() {
    begin 'training'
    options="--model mlp --epochs 40 --log-every 500 --no-eval --save-every 5"
    cat >rank.sh <<END
# Rank 0 copies the checkpoint from which its generation resumes. The first two generations take 20 ms a step.
generation=\$TORCHELASTIC_RESTART_COUNT link=
[ "\$generation" -ge 2 ] || link='--link 10,20000'
[ "\$RANK" != 0 ] || [ ! -d out ] || cp -r out "begin_\$generation" || exit 9
exec "$bin/train_ddp" $options \$link --resume auto --out out
END
    node 0 --nnodes 1:3 --last-call 0.3 sh rank.sh
    node 1 --nnodes 1:3 sh rank.sh
    until_says err_0 'generation 0: 2 nodes, 2 ranks; came: .* pid [0-9]+, .* pid [0-9]+; this is node 0$'
    until_says err_0 'starting at step 0'
    tries=0
    until [ "$(step_of out)" -gt 0 ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || complain 'no checkpoint'
        sleep 0.1
    done
    held=$(step_of out)
    node 2 --nnodes 1:3 sh rank.sh
    until_says err_0 "generation 1: 3 nodes, 3 ranks; came: .* pid [0-9]+; this is node 0$"
    says err_0 'ddprun: .* pid [0-9]+ asks to join$'
    until_says err_0 'resumed out/last.safetensors at step'
    silent err_1 '^ddprun: rank 1 .*local rank' # not reported: node 1's rank ended as a consequence
    sleep 0.5
    held_again=$(step_of out)
    kill -9 "$(ddprun_of 1)"
    ends 1 137
    until_says err_0 "generation 2: 2 nodes, 2 ranks; left: .* pid [0-9]+ \(lost\); this is node 0$"
    ends 0 0
    ends 2 0
    says err_2 'generation 2: .*; this is node 1$'
    says out_0 '^step=999 '
    sed -n 's/.*resumed .* at step //p' err_0 >err_steps
    newest="$(step_of begin_1) $(step_of begin_2)"
    [ "$(echo $(cat err_steps))" = "$newest" ] || complain "resumed at $(cat err_steps), the newest were $newest"
    [ "$(step_of begin_1)" -ge "$held" ] && [ "$(step_of begin_2)" -ge "$held_again" ] || complain "$newest, held $held, $held_again"
    # shellcheck disable=SC2086 # words
    same_as_fresh begin_2 2 out "$bin/train_ddp" $options
}

# --- Fewer than MIN

too_few() {
    begin 'too few at the start'
    node 0 --nnodes 2:3 --start-timeout 1 true
    ends 0 1
    says err_0 '^ddprun: waiting for 1 more node \(1 of at least 2 ready\): .* of at most 1 s'
    says err_0 '^error: only 1 node is ready, --nnodes 2:3 needs 2, and no other came within 1 s: start ddprun on another node'

    begin 'too few are left'
    node 0 --nnodes 2:3 --last-call 0.3 --start-timeout 1.5 sleep 60
    node 1 --nnodes 2:3 sleep 60
    until_says err_1 'generation 0: 2 nodes'
    kill -TERM "$(ddprun_of 1)"
    ends 1 143
    ends 0 1
    says err_0 '^ddprun: node 1: its ddprun received SIGTERM'
    says err_0 '^error: only 1 node is ready, --nnodes 2:3 needs 2'
}

# --- A node leaves, and another takes its place

places() {
    begin 'a replacement'
    node 0 --nnodes 2:3 --last-call 0.3 sh -c 'test $TORCHELASTIC_RESTART_COUNT = 1 || sleep 60; echo "$RANK of $WORLD_SIZE, node $GROUP_RANK"'
    node 1 --nnodes 2:3 sh -c 'test $TORCHELASTIC_RESTART_COUNT = 1 || sleep 60'
    until_says err_1 'generation 0: 2 nodes'
    kill -TERM "$(ddprun_of 1)"
    ends 1 143
    node 7 --nnodes 2:3 sh -c 'echo "$RANK of $WORLD_SIZE, node $GROUP_RANK"'
    ends 0 0
    ends 7 0
    says err_0 'generation 1: 2 nodes, 2 ranks; left: .* pid [0-9]+; came: .* pid [0-9]+; this is node 0$'
    says out_0 '^0 of 2, node 0$'
    says out_7 '^\[1\]: 1 of 2, node 1$'
}

# --- Node 1 is suspended while node 0 forms the generation

suspended() {
    begin 'a node that leaves before it has seen its place'
    node 0 --nnodes 2:3 --last-call 2 sleep 60
    node 1 --nnodes 2:3 --start-timeout 4 sleep 60
    until_says err_1 'waiting for a place'
    kill -STOP "$(ddprun_of 1)"
    until_says err_0 'generation 0: 2 nodes'
    kill -TERM "$(ddprun_of 1)"
    kill -CONT "$(ddprun_of 1)"
    ends 1 143
    until_says err_0 '^ddprun: .* pid [0-9]+ has left$'
    kill -TERM "$(ddprun_of 0)"
    ends 0 143

    begin 'a node that is suspended before it has seen its place'
    node 0 --nnodes 2:3 --last-call 2 sh -c 'test $TORCHELASTIC_RESTART_COUNT = 1 || sleep 60'
    node 1 --nnodes 2:3 --start-timeout 4 true
    until_says err_1 'waiting for a place'
    kill -STOP "$(ddprun_of 1)"
    until_says err_0 '^ddprun: the ddprun on .* pid [0-9]+ has been silent for 3 s$'
    kill -CONT "$(ddprun_of 1)"
    ends 1 0
    ends 0 0
    says err_1 'generation 1: 2 nodes'
    silent err_1 'generation 0|exited'
}

# --- Node 0 is lost

node_0() {
    begin 'node 0 is killed'
    node 0 --nnodes 1:2 --last-call 0.3 sleep 60
    node 1 --nnodes 1:2 sleep 60
    until_says err_1 'generation 0: 2 nodes'
    kill -9 "$(ddprun_of 0)"
    ends 0 137
    ends 1 1
    says err_1 '^ddprun: the ddprun of node 0 is gone'
    nothing_left

    begin 'node 0 receives a signal'
    node 0 --nnodes 1:2 --last-call 0.3 sleep 60
    node 1 --nnodes 1:2 sleep 60
    until_says err_1 'generation 0: 2 nodes'
    kill -INT "$(ddprun_of 0)"
    ends 0 130
    ends 1 1
    says err_1 '^ddprun: node 0: its ddprun received SIGINT'
}

# --- A rank fails: only that counts as a restart

restarts() {
    begin 'no restart is left'
    node 0 --nnodes 1:2 --last-call 0.3 --max-restarts 1 sleep 60
    node 1 --nnodes 1:2 --max-restarts 1 sh -c 'sleep 0.2; exit 7'
    ends 0 1
    ends 1 7
    says err_0 'restarting all ranks \(restart 1 of 1\)'
    says err_0 '^error: a rank failed, and no restart of --max-restarts 1 is left'
    says err_1 '^ddprun: a rank failed, and no restart'
    says err_1 'generation 1: 2 nodes, 2 ranks; this is node 1$'
}

# --- Nodes without a place

room() {
    begin 'room and numbers'
    node 0 --nnodes 1:2 --last-call 0.3 sh -c 'until [ -e ended ]; do sleep 0.1; done'
    node 1 --nnodes 1:2 sh -c 'until [ -e ended ]; do sleep 0.1; done'
    until_says err_1 'generation 0: 2 nodes'
    node 2 --nnodes 1:2 --start-timeout 2 true
    node 3 --nnodes 1:3 true
    ends 3 2
    says err_3 '^error: --nnodes 1:2 --nproc-per-node 1 at node [01] and --nnodes 1:3 --nproc-per-node 1 at node 3 -- start'
    until_says err_2 'waiting for a place.*: [2-9] s' # node 0 reads the requests once a second
    touch ended
    ends 0 0
    ends 1 0
    ends 2 0
    says err_2 '^ddprun: the job has ended'
    silent err_0 'generation 1'
}

whole=$folder cases=
for group in training too_few places suspended node_0 restarts room; do
    folder=$whole/$group port=$((port + 3))
    mkdir "$folder" && cd "$folder" || exit 1
    (
        "$group"
        nothing_left
    ) >said 2>&1 &
    cases="$cases $group:$!"
done
folder=$whole failed=0
for group in $cases; do
    wait "${group#*:}" && continue
    failed=1
    cat "$whole/${group%:*}/said"
done
[ "$failed" = 0 ] && echo "ddprun_elastic: all as expected"
exit "$failed"
