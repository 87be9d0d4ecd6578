#!/bin/sh
# mpi_ends.sh BIN_DIR MPI: jobs over MPI whose ranks do not end together: a rank that leaves late is waited for, as long
# as for a collective; a rank that continues with a broken group is ended by MPI_Abort or, if that hangs, by force. (The
# ranks' errors: mpi_faults.sh.)
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"

# ends STATUS WORDS N ARGUMENT...: a job of N ranks ends by itself, with status 0 or another one as given; its output
# contains the words
ends() {
    wanted=$1 words=$2 status=0
    shift 2
    count=$1
    shift
    ranks "$count" "$bin/mpi_rank" "$@" >out.txt 2>err.txt </dev/null || status=$?
    checks=$((checks + 1))
    if [ "$wanted" = 0 ]; then
        [ $status = 0 ] || fail "$*: status $status: $(cat err.txt)"
    else
        by_itself "$*" $status
    fi
    grep -qF -- "$words" out.txt err.txt || fail "no \"$words\" from $*: $(cat out.txt err.txt)"
}

# The seconds are sleeps of ranks; they are not judged.
ends 0 'rank 0 has saved' 2 late 7 60
ends 1 'MPI_Finalize did not return within 2 s' 2 late 600 2
ends 1 'the process still runs with a broken group: MPI_Abort' 2 goes-on
ends 1 'MPI_Abort did not return within 5 s' 2 no-abort
ends 1 'MPI was started without MPI_THREAD_MULTIPLE' 1 single
tally mpi_ends
