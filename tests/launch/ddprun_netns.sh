#!/bin/sh
# ddprun_netns.sh BIN: two nodes in two network namespaces joined by a cable (veth), one ddprun on each: trains, loses
# one ddprun, loses the cable. Ends with 77 (skipped) where namespaces or the ip command are missing.
set -u
bin=$1
command -v ip >/dev/null && command -v unshare >/dev/null && command -v nsenter >/dev/null || exit 77
# Needs root, or a user namespace, where the system allows it to all users.
if [ "${2-}" != inside ]; then
    unshare --net --mount true 2>/dev/null && exec unshare --net --mount "$0" "$bin" inside
    unshare --map-root-user --net --mount true 2>/dev/null || exit 77
    exec unshare --map-root-user --net --mount "$0" "$bin" inside
fi

folder=$(mktemp -d) || exit 1
cd "$folder" || exit 1
unshare --net sleep 600 & # keeps the network namespace of node 1 open
holder=$!
trap 'kill $holder 2>/dev/null; rm -rf "$folder"' EXIT
away() { nsenter --net="/proc/$holder/ns/net" "$@"; }

tries=0
while [ "$(readlink "/proc/$holder/ns/net")" = "$(readlink /proc/$$/ns/net)" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || exit 77
    sleep 0.05
done
ip link add here type veth peer name there netns "$holder" 2>/dev/null || exit 77
ip link set lo up && ip addr add 10.77.0.1/24 dev here && ip link set here up || exit 77
away ip link set lo up && away ip addr add 10.77.0.2/24 dev there && away ip link set there up || exit 77

complain() {
    echo "FAILED: $*"
    tail -n 20 err0 err1
    exit 1
}
export DDPRUN_TOKEN=0123456789abcdef
port=29511

# start ARGUMENT...: starts one ddprun on each node; their process ids are in node0 and node1.
start() {
    port=$((port + 1))
    timeout -k 5 60 "$bin/ddprun" --nnodes 2 --node-rank 0 --master-addr 10.77.0.1 --master-port $port \
        "$@" >out0 2>err0 &
    node0=$!
    nsenter --net="/proc/$holder/ns/net" timeout -k 5 60 "$bin/ddprun" --nnodes 2 --node-rank 1 --master-addr 10.77.0.1 \
        --master-port $port "$@" >out1 2>err1 &
    node1=$!
}
# ends STATUS0 STATUS1: waits for both, which must end with these statuses.
ends() {
    wait "$node0"
    got0=$?
    wait "$node1"
    got1=$?
    [ "$got0" = "$1" ] || complain "node 0: status $got0, expected $1"
    [ "$got1" = "$2" ] || complain "node 1: status $got1, expected $2"
}
# until_line FILE PATTERN: waits for a line of FILE that matches PATTERN.
until_line() {
    tries=0
    until grep -q -- "$2" "$1" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || complain "waited for '$2' in $1"
        sleep 0.1
    done
}
nothing_left() {
    tries=0
    while ps -o args= -e | grep -q "^sleep 77.125"; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || complain "$1: a rank is left"
        sleep 0.1
    done
}
rank='echo "started $RANK of $WORLD_SIZE" >&2; exec sleep 77.125'

# The shm backend works across network namespaces: both nodes run on the same machine.
start --nproc-per-node 1 "$bin/train_ddp" --model mlp --steps 30 --no-eval --save "$folder/two"
ends 0 0
timeout 60 "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --model mlp --steps 30 --no-eval \
    --save "$folder/one" >out0 2>err0 || complain "one node"
"$bin/compare_tensors" --bitwise two one >out0 2>&1 || complain "two nodes train other weights than one"

start --nproc-per-node 2 sh -c 'test "$RANK" = 3 && exit 7; sleep 77.125'
ends 1 7
grep -q '^ddprun: node 1: rank 3 .* exited with status 7' err0 || complain "node 0 does not know why"

# shellcheck disable=SC2016 # the ranks expand it
start --nproc-per-node 2 sh -c "$rank"
until_line err1 'started 3 of 4'
until_line err0 'started 1 of 4'
kill -9 "$(ps -o pid= --ppid "$node1")" # timeout is its parent
ends 1 137
grep -q '^ddprun: the ddprun of node 1 has been silent for' err0 || complain "node 1's end is not noticed"
nothing_left 'node 1 killed'

start --nproc-per-node 2 sh -c "$rank"
until_line err1 'started 3 of 4'
until_line err0 'started 1 of 4'
ip link set here down
ends 1 1
grep -q '^ddprun: the ddprun of node 1 has been silent for' err0 || complain "node 0 and the cable"
grep -q '^ddprun: the ddprun of node 0 is gone' err1 || complain "node 1 and the cable"
nothing_left 'no cable'
echo "ddprun_netns: all as expected"
