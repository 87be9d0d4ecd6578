#!/bin/sh
# real_link.sh BIN REAL_LINK_DIR: compares the model of an emulated link with a real slow one: two network namespaces, a
# cable between them, and tc's token bucket at both ends. Ends with 77 (skipped) if they cannot be made. The only test
# that judges times: it verifies the model against reality.
set -u
tools=$2
command -v ip >/dev/null && command -v tc >/dev/null && command -v nsenter >/dev/null || exit 77
# As root, or as root of a user namespace, if the system allows it.
if [ "${3-}" != inside ]; then
    unshare --net --mount true 2>/dev/null && exec unshare --net --mount "$0" "$1" "$2" inside
    unshare --map-root-user --net --mount true 2>/dev/null || exit 77
    exec unshare --map-root-user --net --mount "$0" "$1" "$2" inside
fi

unshare --net sleep 600 & # keeps the other network namespace open
holder=$!
server=
trap 'kill $holder $server 2>/dev/null' EXIT
away() { nsenter --net="/proc/$holder/ns/net" "$@"; }
tries=0
while [ "$(readlink "/proc/$holder/ns/net")" = "$(readlink /proc/$$/ns/net)" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || exit 77
    sleep 0.05
done
ip link add here type veth peer name there netns "$holder" 2>/dev/null || exit 77
ip addr add 10.78.0.1/24 dev here && ip link set here up || exit 77
away ip addr add 10.78.0.2/24 dev there && away ip link set there up || exit 77
bucket="root tbf rate 200mbit burst 32kb latency 200ms"
# shellcheck disable=SC2086 # the list is words
tc qdisc add dev here $bucket 2>/dev/null && away tc qdisc add dev there $bucket 2>/dev/null || exit 77

nsenter --net="/proc/$holder/ns/net" "$tools/real_link" serve 29590 &
server=$!
"$tools/real_link" measure 10.78.0.2 29590 0.2
