#!/bin/sh
# mpi_faults.sh BIN_DIR MPI: runs test_mpi_faults and test_mpi_hosts with four ranks on two simulated hosts (not with
# MPICH, whose ranks spin at start and end).
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"
[ "$mpi" = openmpi ] || skip "MPICH's ranks spin, so no more than two run here"
export FAKE_HOSTS=2
for test in test_mpi_faults test_mpi_hosts; do
    run "$test" ranks 4 "$bin/$test"
    checks=$((checks + 1))
    [ "$(cat out.txt err.txt | grep -cE '^\[  PASSED  \] [0-9]+ test')" = 4 ] ||
        fail "$test: not all of four ranks passed: $(cat out.txt err.txt)"
done
tally mpi_faults
