#!/bin/sh
# mpi_cable.sh BIN_DIR MPI: ranks on two hosts, and the cable between them is pulled in the middle of an
# all-reduce; or a rank of the far host is killed, or stopped. The job ends within the deadline, somebody names
# the rank, and no rank is left on either host. (Behind a pulled cable MPI's own daemon stays: it has no
# deadline.)
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"
[ "$mpi" = openmpi ] || skip "the recipe is Open MPI's"
. "$(dirname "$0")/hosts.sh"
train="$bin/train_ddp --backend mpi --model mlp --hidden 2048,2048 --epochs 100000 --no-eval --log-every 1 --timeout-s 4"

# begin: a training on both hosts, of which step 3 is over
begin() {
    # shellcheck disable=SC2086 # the command is words
    limit=40 across 1 $train >out.txt 2>err.txt </dev/null &
    job=$!
    under_way
}
# ends WHAT
ends() {
    status=0
    checks=$((checks + 1))
    wait $job || status=$?
    [ $status != 0 ] || fail "$1: status 0"
    hosts_idle train_ddp || fail "$1: ranks are left:$left"
}
far() { hosts_pids 2 train_ddp; }

hosts_open 1gbit
begin
kill -STOP $(far)
ends "a stopped rank"
checks=$((checks + 1))
grep -q 'rank 1 did not arrive within 4.0 s' err.txt || fail "a stopped rank is not named: $(cat err.txt)"

begin
kill -KILL $(far)
ends "a killed rank"
checks=$((checks + 1))
grep -q 'rank 1 .*signal 9' err.txt || fail "a killed rank is not named: $(cat err.txt)"

begin
hosts_cut
ends "a pulled cable"
checks=$((checks + 1))
grep -q 'rank 1 did not arrive within 4.0 s' err.txt || fail "the rank behind the cable is not named: $(cat err.txt)"

tally mpi_cable
