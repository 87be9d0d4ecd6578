#!/bin/sh
# mpi_collectives.sh BIN_DIR MPI: the table of test_process_group over MPI: every collective, in worlds of one to
# five ranks (with MPICH of one and two: its ranks spin while they start and end), and with ranks that believe to be on
# two hosts, and on three, where the middle one hands on the others' sums. And test_subgroups: groups within a group.
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"

limit=240 # a busy machine takes its time; every wait inside has its own deadline
worlds='1 2 3 4 5'
[ "$mpi" = openmpi ] || worlds='1 2'
# all_pass WORLD TEST
all_pass() {
    run "$2 in a world of $1" ranks "$1" env ${FAKE_HOSTS:+LD_PRELOAD="$bin/libfake_hosts.so"} "$bin/$2" mpi
    [ "$(cat out.txt err.txt | grep -cE '^\[  PASSED  \] [0-9]+ test')" = "$1" ] ||
        fail "$2: not all of $1 ranks passed: $(cat out.txt err.txt)"
}
for world in $worlds; do
    all_pass "$world" test_process_group
    [ "$world" = 1 ] || all_pass "$world" test_subgroups
done
if [ "$mpi" = openmpi ]; then
    export FAKE_HOSTS
    FAKE_HOSTS=2
    all_pass 4 test_process_group
    FAKE_HOSTS=3
    all_pass 6 test_process_group
fi
tally mpi_collectives
