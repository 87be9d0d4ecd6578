#!/bin/sh
# mpi_messages.sh BIN_DIR MPI: runs test_mpi_messages with two and four ranks on two simulated hosts, and with six on
# three (not with MPICH, whose ranks spin at start and end).
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"
worlds='2 4 6'
[ "$mpi" = openmpi ] || worlds=2
for world in $worlds; do
    export FAKE_HOSTS=$((world < 6 ? 2 : 3))
    run "a world of $world" ranks "$world" "$bin/test_mpi_messages"
    [ "$(cat out.txt err.txt | grep -cE '^\[  PASSED  \] 1 test')" = "$world" ] ||
        fail "not all of $world ranks passed: $(cat out.txt err.txt)"
done
tally mpi_messages
