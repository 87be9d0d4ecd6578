# elastic_jobs.sh: functions that start and watch the nodes of elastic jobs; sourced by tests. Each node is a ddprun on
# this machine. The test sets bin, port and case before.
# shellcheck shell=sh disable=SC2154,SC2119,SC2120

folder=$(mktemp -d) || exit 1
cd "$folder" || exit 1
export DDPRUN_TOKEN=0123456789abcdef
unset PET_NNODES OMP_NUM_THREADS OPENBLAS_NUM_THREADS

# node NUMBER ARGUMENT...: starts the ddprun of a node, in the network of machine NUMBER if network_NUMBER is set. The
# pid of its `timeout` is in shell_NUMBER, its stderr in err_NUMBER. Node 0 serves the store.
node() {
    number=$1
    shift
    eval "network=\${network_$number-}"
    DDPC_ELASTIC_TEST=$folder DDPC_ELASTIC_NODE=$number ${network:+nsenter --net="$network"} \
        timeout -k 5 100 "$bin/ddprun" --node-rank "$number" --master-addr "${master:-127.0.0.1}" --master-port "$port" \
        --heartbeat-timeout 3 --start-timeout 30 "$@" >"out_$number" 2>"err_$number" &
    eval "shell_$number=$!"
}
# ours [NUMBER]: prints the processes of all nodes, or of one, found by the variables that they inherit.
ours() {
    grep -lsaz "^DDPC_ELASTIC_TEST=$folder" /proc/[0-9]*/environ | while read -r file; do
        [ -n "${1-}" ] && ! grep -qsaz "^DDPC_ELASTIC_NODE=$1\$" "$file" && continue
        file=${file#/proc/}
        echo "${file%/environ}"
    done
}
# ddprun_of NUMBER: prints the pid of a node's ddprun, the child of `timeout`.
ddprun_of() {
    eval "parent=\$shell_$1"
    ps -o pid= --ppid "$parent"
}
kill_all() {
    for pid in $(ours); do kill -9 "$pid" 2>/dev/null; done
}
nothing_left() {
    tries=0
    while [ -n "$(ours)" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || complain "$case: left behind: $(ours)"
        sleep 0.1
    done
}
# until_says FILE PATTERN: waits for a line of FILE that matches PATTERN.
until_says() {
    tries=0
    until grep -Eqs -- "$2" "$1"; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || complain "$case: waited for '$2' in $1"
        sleep 0.1
    done
}
# step_of FOLDER: prints the step of its newest complete checkpoint, or 0. A checkpoint names its second file
# NAME.STEP.CHECKSUM.optimizer. While the next checkpoint is renamed to `last`, the newest is `previous` for a moment.
step_of() {
    for name in last previous last; do
        step=$(grep -aom 1 '"optimizer_file": "[^"]*' "$1/$name.safetensors" 2>/dev/null | sed 's/.*safetensors\.//; s/\..*//')
        [ -z "$step" ] || break
    done
    echo "${step:-0}"
}
# same_as_fresh BEGIN RANKS OUT COMMAND...: OUT's last checkpoint is bit-identical to that of COMMAND with RANKS ranks,
# resumed from BEGIN, or started at step 0 where BEGIN has no checkpoint.
same_as_fresh() {
    begin=$1 ranks=$2 out=$3
    shift 3
    [ "$(step_of "$begin")" = 0 ] || set -- "$@" --resume "$begin"
    rm -rf fresh
    "$bin/ddprun" --nproc-per-node "$ranks" "$@" --out fresh >out_fresh 2>err_fresh || complain "$case: the fresh run"
    for file in last.safetensors "$(basename "$(find "$out" -name 'last.*.optimizer')")"; do
        "$bin/compare_tensors" --bitwise "$out/$file" "fresh/$file" >err_compare 2>&1 || complain "$case: $file differs"
    done
}
