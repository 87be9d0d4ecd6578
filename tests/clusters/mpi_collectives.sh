#!/bin/sh
# mpi_collectives.sh BIN_DIR MPI: the table of test_process_group over MPI: every collective, in worlds of one to
# five ranks (with MPICH of one and two: its ranks spin while they start and end).
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"

limit=240 # a busy machine takes its time; every wait inside has its own deadline
worlds='1 2 3 4 5'
[ "$mpi" = openmpi ] || worlds='1 2'
for world in $worlds; do
    run "a world of $world" ranks "$world" "$bin/test_process_group" mpi
    [ "$(cat out.txt err.txt | grep -cE '^\[  PASSED  \] [0-9]+ test')" = "$world" ] ||
        fail "not all of $world ranks passed: $(cat out.txt err.txt)"
done
tally mpi_collectives
