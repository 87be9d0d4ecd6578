# hosts.sh: makes two hosts on one machine; sourced after mpi.sh. A host is a network namespace and a UTS namespace (MPI
# takes hosts of the same name for one), the cable is a pair of veth devices. Ends with 77 (skipped) without root or
# namespaces.
#
#     hosts_open [RATE]     makes them; RATE (1gbit, ...) limits both ends of the cable
#     on HOST COMMAND...    HOST is 1 or 2, with address 10.88.N.1 or 10.88.N.2
#     across NP COMMAND...  runs NP ranks on each host by Open MPI, started on the first; NP 3+2: three on the
#                           first, two on the second
#     hosts_cut             cuts the cable
#     hosts_close           ends all processes of the hosts, and removes the hosts
#
# Several tests may run at the same time: names and network addresses contain this process's number.
[ "$(id -u)" = 0 ] || skip "two hosts need root"
for tool in ip tc unshare nsenter; do
    command -v $tool >/dev/null || skip "there is no $tool"
done
net=10.$((64 + $$ / 256 % 64)).$(($$ % 256))
host() { echo "ddpc$$-$1"; }

hosts_close() {
    for n in 1 2; do
        pids=$(ip netns pids "$(host $n)" 2>/dev/null) || continue
        # shellcheck disable=SC2086 # numbers
        [ -z "$pids" ] || kill -9 $pids 2>/dev/null
        ip netns del "$(host $n)"
    done
    return 0
}

hosts_open() {
    trap 'hosts_close; rm -rf "$work"' EXIT
    trap 'exit 143' INT TERM HUP # runs the EXIT trap above
    for n in 1 2; do
        ip netns add "$(host $n)" 2>err.txt || skip "no network namespaces: $(cat err.txt)"
    done
    ip link add cable netns "$(host 1)" type veth peer name cable netns "$(host 2)" 2>err.txt ||
        skip "no veth: $(cat err.txt)"
    for n in 1 2; do
        ip -n "$(host $n)" link set lo up
        ip -n "$(host $n)" addr add "$net.$n/24" dev cable
        ip -n "$(host $n)" link set cable up
        [ -z "${1-}" ] || tc -n "$(host $n)" qdisc add dev cable root tbf rate "$1" burst 1mb limit 8mb \
            2>err.txt || skip "no shaping: $(cat err.txt)"
    done
    # Called by mpirun instead of ssh: HOST COMMAND.
    cat >agent.sh <<'AGENT'
#!/bin/sh
n=${1##*.}
shift
exec nsenter --net="/run/netns/$HOSTS-$n" unshare -u sh -c 'hostname "$0"; exec sh -c "$1"' "$HOSTS-$n" "$*"
AGENT
    chmod +x agent.sh
    export HOSTS="ddpc$$"
}

on() {
    n=$1
    shift
    nsenter --net="/run/netns/$(host "$n")" unshare -u sh -c 'hostname "$0"; exec "$@"' "$(host "$n")" "$@"
}

across() {
    a=${1%+*} b=${1#*+}
    shift
    new_job
    on 1 timeout -v -k 5 "${limit:-60}" "$mpirun" --mca plm_rsh_agent "$work/agent.sh" \
        --host "$net.1:$a,$net.2:$b" -np $((a + b)) --mca btl vader,tcp,self \
        --mca btl_tcp_if_include "$net.0/24" --mca oob_tcp_if_include "$net.0/24" "$@"
}

hosts_cut() {
    ip -n "$(host 1)" link set cable down
}

# hosts_pids HOST PROGRAM: prints the pids of this program
hosts_pids() {
    for pid in $(ip netns pids "$(host "$1")"); do
        case $(cat "/proc/$pid/comm" 2>/dev/null) in "$2") echo "$pid" ;; esac
    done
}

# hosts_idle PROGRAM: neither host runs this program any more; MPI's own daemon may run
hosts_idle() {
    tries=0
    while :; do
        left="$(hosts_pids 1 "$1") $(hosts_pids 2 "$1")"
        [ "$left" != ' ' ] || return 0
        tries=$((tries + 1))
        [ $tries -lt 150 ] || return 1
        sleep 0.1
    done
}
