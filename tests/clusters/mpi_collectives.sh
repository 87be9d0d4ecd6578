#!/bin/sh
# mpi_collectives.sh BIN_DIR MPI [quick]: test_process_group over MPI: every collective, in worlds of one to five ranks
# (with MPICH one and two: its ranks spin at start and end), also on two simulated hosts, and on three, whose middle
# host forwards the others' sums. And test_subgroups, also with a delayed rank 0, which finds messages of the other
# ranks' next calls before its own wait has completed. quick: one world on one host, one on three.
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"

limit=240 # for a busy machine; the waits within have their own deadlines
worlds='1 2 3 4 5' fake=
[ "$mpi" = openmpi ] || worlds='1 2'
[ "${3:-}" != quick ] || worlds=2
# all_pass WORLD TEST
all_pass() {
    run "$2 in a world of $1" ranks "$1" env ${fake:+LD_PRELOAD="$bin/lib$fake.so"} "$bin/$2" mpi
    [ "$(cat out.txt err.txt | grep -cE '^\[  PASSED  \] [0-9]+ test')" = "$1" ] ||
        fail "$2: not all of $1 ranks passed: $(cat out.txt err.txt)"
}
for world in $worlds; do
    all_pass "$world" test_process_group
    [ "$world" = 1 ] || all_pass "$world" test_subgroups
done
if [ "$mpi" = openmpi ]; then
    export FAKE_PAUSE FAKE_HOSTS
    if [ "${3:-}" != quick ]; then
        fake=fake_pause FAKE_PAUSE=800
        for world in 3 4 5; do
            all_pass "$world" test_subgroups
        done
        fake=fake_hosts FAKE_HOSTS=2
        all_pass 4 test_process_group
    fi
    fake=fake_hosts FAKE_HOSTS=3
    all_pass 6 test_process_group
fi
tally mpi_collectives
