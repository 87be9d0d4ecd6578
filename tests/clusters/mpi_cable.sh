#!/bin/sh
# mpi_cable.sh BIN_DIR MPI: ranks on two hosts, whose cable is cut during an all-reduce; or a rank of the remote host is
# killed, or stopped. The ranks end within the deadline, a message names the lost rank, and no process is left on either
# host. So does the job, except after a cut: mpirun and its daemon on the remote host have no deadline and wait for each
# other, and this test ends them.
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"
[ "$mpi" = openmpi ] || skip "the recipe is Open MPI's"
. "$(dirname "$0")/hosts.sh"
train="--backend mpi --model mlp --hidden 2048,2048 --epochs 100000 --no-eval --log-every 1 --timeout-s 4"

# begin: starts a training on both hosts and waits until step 3 is complete
begin() {
    : >out.txt # removes the previous job's output
    # shellcheck disable=SC2086 # the command is words
    limit=40 across 1 "$bin/train_ddp" $train >out.txt 2>err.txt </dev/null &
    job=$!
    under_way
}
# ends WHAT
ends() {
    status=0
    wait $job || status=$?
    by_itself "$1" $status
    checks=$((checks + 1))
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
checks=$((checks + 2))
hosts_idle train_ddp || fail "a pulled cable: ranks are left: $left"
# shellcheck disable=SC2046 # the list of pids
kill -KILL $(hosts_pids 1 "$(basename "$mpirun")")
wait $job && fail "a pulled cable: status 0"
grep -q 'rank 1 did not arrive within 4.0 s' err.txt || fail "the rank behind the cable is not named: $(cat err.txt)"

tally mpi_cable
