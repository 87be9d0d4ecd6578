#!/bin/bash
# elastic_rounds.sh BIN [ROUNDS [SEED]]: trains an elastic job whose nodes join, fail and leave at random, by default in
# 20 rounds, and prints a table. Each of four machines is a network namespace with a cable (veth) to that of machine 0,
# which serves the store. In each round, at random moments:
#
#   join   a ddprun starts on a machine without one       stop   all its processes get SIGSTOP, later (cont) SIGCONT
#   kill   its ddprun gets SIGKILL                        cut    its cable is down, until (mend) it is up again
#   leave  its ddprun gets SIGTERM                        rank   one of its ranks gets SIGKILL; also on machine 0
#
# Every round must end with 0 on machine 0. A generation that is formed after an event resumes at the step of the newest
# checkpoint of that moment or later. The last weights and the optimizer's state must be bit-identical to those of a run
# that resumes from the last generation's checkpoint with as many ranks. No process, open port or file in /dev/shm may be
# left. Ends with 77 (skipped) where namespaces are not available.
set -u
bin=$(cd "$1" && pwd) || exit 1
rounds=${2:-20} seed=${3:-$(date +%s)}
command -v ip >/dev/null && command -v unshare >/dev/null && command -v nsenter >/dev/null || exit 77
if [ "${4-}" != inside ]; then
    unshare --net --mount true 2>/dev/null && exec unshare --net --mount "$0" "$bin" "$rounds" "$seed" inside
    unshare --map-root-user --net --mount true 2>/dev/null || exit 77
    exec unshare --map-root-user --net --mount "$0" "$bin" "$rounds" "$seed" inside
fi
mount --make-rprivate / && mount -t tmpfs none /dev/shm || exit 77
port=29500 master=10.77.0.1 case=start
. "$(dirname "$0")/elastic_jobs.sh"
MACHINES="1 2 3" HOLD_S=1000000
declare -A state allowed shell
holders=
trap 'kill_all; kill $holders 2>/dev/null; rm -rf "$folder"' EXIT
complain() {
    echo "FAILED: round $round of seed $seed: $*"
    tail -n 25 err_*
    exit 1
}

# --- The machines' networks

mend_cable() { ip link set "cable$1" up && ip route replace "10.77.0.1$1/32" dev "cable$1" src "$master"; }
ip link set lo up && ip addr add "$master/32" dev lo || exit 77
for m in $MACHINES; do
    unshare --net sleep "$HOLD_S" &
    holder=$!
    holders="$holders $holder"
    for ((try = 0; try < 100; try++)); do
        [ "$(readlink "/proc/$holder/ns/net")" = "$(readlink /proc/$$/ns/net)" ] || break
        sleep 0.05
    done
    declare "network_$m=/proc/$holder/ns/net"
    ip link add "cable$m" type veth peer name eth netns "$holder" 2>/dev/null || exit 77
    mend_cable "$m" || exit 77
    nsenter --net="/proc/$holder/ns/net" sh -c "ip link set lo up && ip addr add 10.77.0.1$m/32 dev eth &&
        ip link set eth up && ip route add $master dev eth" || exit 77
done

# --- What happens

RANDOM=$((seed % 32768))
draw() { drawn=$((RANDOM % $1)); } # sets a variable: in a subshell, RANDOM would repeat its values
pause() {
    draw 150
    sleep "$((drawn / 100)).$(printf '%02d' $((drawn % 100)))"
}
linger() { # every second time, until the other nodes have detected the failure
    draw 2
    sleep $((4 * drawn))
}
send() { # SIGNAL MACHINE: to all processes of the machine's ddprun
    for pid in $(ours "$2"); do kill "-$1" "$pid" 2>/dev/null; done
}
begin_node() { # MACHINE
    node "$1" --nnodes "$min:3" --max-restarts 1000 --last-call 0.3 --start-timeout 20 bash rank.sh
    eval "shell[$1]=\$shell_$1"
    state[$1]=runs allowed[$1]=" 0 "
}
# Waits for each ddprun that has ended; its status must be one that its events allow.
reap_nodes() {
    local m status
    for m in $MACHINES; do
        [ "${state[$m]}" != empty ] || continue
        ! kill -0 "${shell[$m]}" 2>/dev/null || continue
        wait "${shell[$m]}" 2>/dev/null
        status=$?
        [[ ${allowed[$m]} == *" $status "* ]] || complain "machine $m: status $status, allowed: ${allowed[$m]}"
        [ "${state[$m]}" != cut ] || mend_cable "$m"
        state[$m]=empty
    done
}
kill_rank() { # MACHINE
    for pid in $(ours "$1"); do
        grep -qsaz '^LOCAL_RANK=0$' "/proc/$pid/environ" && kill -9 "$pid" 2>/dev/null && return 0
    done
    return 1
}
happen() { # EVENT MACHINE: as in the table above
    local m=$2
    case $1 in
    join) begin_node "$m" ;;
    kill) kill -9 "$(ddprun_of "$m")" 2>/dev/null && state[$m]=dying allowed[$m]+="137 " ;;
    leave) kill -TERM "$(ddprun_of "$m")" 2>/dev/null && state[$m]=dying allowed[$m]+="143 " ;;
    stop) send STOP "$m" && state[$m]=stopped allowed[$m]+="1 " && linger ;;
    cont) send CONT "$m" && state[$m]=runs ;;
    cut) ip link set "cable$m" down && state[$m]=cut allowed[$m]+="1 " && linger ;;
    mend) mend_cable "$m" && state[$m]=runs ;;
    rank) kill_rank "$m" || return 0 ;;
    esac
    events="$events $1-$m"
}
event() {
    reap_nodes
    # Recorded before the event: no later generation may start before this step.
    held+=("$(grep -c ': generation ' err_0) $(step_of out)")
    draw 7
    if [ "$drawn" = 0 ]; then
        happen rank 0
        return
    fi
    local m=$((drawn % 3 + 1))
    case ${state[$m]} in
    empty) happen join "$m" ;;
    stopped) happen cont "$m" ;;
    cut) happen mend "$m" ;;
    runs)
        local choices=(kill leave stop cut rank)
        draw 5
        happen "${choices[drawn]}" "$m"
        ;;
    esac
}

# --- What must hold

# Prints machine 0's generations, each as "NUMBER NODES STEP"; STEP is - where rank 0 ended before it resumed.
generations() {
    awk '/: generation [0-9]+: / { if (g != "") print g, nodes, step; sub(/.*: generation /, ""); g = $1 + 0; nodes = $2; step = "-" }
        /nothing to resume yet/ && step == "-" { step = 0 }
        /: resumed .* at step [0-9]+$/ && step == "-" { step = $NF } END { print g, nodes, step }' err_0
}
check_steps() {
    local number nodes step count at
    while read -r number nodes step; do
        sizes="$sizes${sizes:+-}$nodes" last_number=$number last_nodes=$nodes
        [ "$step" != - ] || { steps="$steps${steps:+-}_" && continue; }
        steps="$steps${steps:+-}$step"
        [ "$step" = "$(step_of "begin_$number")" ] || complain "generation $number resumed at $step, not from the newest"
        for entry in "${held[@]}"; do
            read -r count at <<<"$entry"
            [ "$number" -lt "$count" ] || [ "$step" -ge "$at" ] || complain "generation $number lost steps: $step, $at were held"
        done
    done < <(generations)
}
run_round() {
    local m n status began=$SECONDS
    case="round $round" events='' sizes='' steps='' held=()
    port=$((port + 1))
    rm -rf out begin_* err_* out_*
    draw 2
    min=$((drawn + 1))
    for m in $MACHINES; do state[$m]=empty; done
    begin_node 0
    draw 2
    for ((n = 1; n <= drawn + 1; n++)); do begin_node "$n"; done
    until_says err_0 'generation 0: '
    for ((n = 0; n < 7; n++)); do
        pause
        kill -0 "${shell[0]}" 2>/dev/null || break # the job has ended
        event
    done
    for m in $MACHINES; do
        [ "${state[$m]}" != stopped ] || happen cont "$m"
        [ "${state[$m]}" != cut ] || happen mend "$m"
    done
    while kill -0 "${shell[0]}" 2>/dev/null; do # keeps at least MIN nodes running until the job ends
        reap_nodes
        for m in $MACHINES; do
            [ "$min" = 1 ] || [[ " ${state[*]} " == *" runs "*" runs "* ]] || [ "${state[$m]}" != empty ] || happen join "$m"
        done
        sleep 0.5
    done
    wait "${shell[0]}" 2>/dev/null
    status=$?
    [ "$status" = 0 ] || complain "machine 0: status $status after$events"
    for m in $MACHINES; do # a node that joined too late would wait for machine 0
        [ "${state[$m]}" != runs ] || grep -q ': generation ' "err_$m" || happen leave "$m"
    done
    nothing_left
    reap_nodes
    check_steps
    # shellcheck disable=SC2086 # words
    same_as_fresh "begin_$last_number" "$last_nodes" out "$bin/train_ddp" $options
    [ -z "$(ls -A /dev/shm)" ] || complain "left in /dev/shm: $(ls /dev/shm)"
    ! ss -Hltn 2>/dev/null | grep -q ":$port " || complain "port $port is open"
    printf '%5d  %3d  %-16s %-22s %4d  %s\n' "$round" "$min" "$sizes" "$steps" $((SECONDS - began)) "$events"
}

exec 2>noise # bash prints a line for every process that a signal ends
options='--model mlp --epochs 12 --log-every 500 --no-eval --save-every 5'
cat >rank.sh <<END
# Rank 0 copies the checkpoint from which its generation resumes. A step takes 10 ms.
[ "\$RANK" != 0 ] || [ ! -d out ] || cp -r out "begin_\$TORCHELASTIC_RESTART_COUNT" || exit 9
link='--link 10,10000'
[ "\$WORLD_SIZE" != 1 ] || link=
exec "$bin/train_ddp" $options \$link --resume auto --out out
END
echo "seed $seed; each round: equal bits, nothing left, no step lost that a checkpoint held (_: rank 0 ended before it resumed)"
echo 'round  min  nodes            resumed at steps        s    events (on machine)'
for ((round = 1; round <= rounds; round++)); do run_round; done
echo "elastic_rounds: $rounds rounds, all as expected"
