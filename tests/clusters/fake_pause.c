/* fake_pause.c: rank 0 loses its core for FAKE_PAUSE microseconds after each MPI_Testall that finds
 * a request still in flight.
 *
 * This simulates a machine with more processes than cores. Meanwhile the other ranks continue with
 * the next collective, and their messages arrive at rank 0 before it knows that its own wait is
 * over. Loaded before a program (LD_PRELOAD), it intercepts the backend's calls of MPI.
 */
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

int MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses) {
    const char *pause = getenv("FAKE_PAUSE");
    int rank, any, status = PMPI_Testall(count, requests, done, statuses);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (pause && rank == 0 && !*done) {
        nanosleep(&(struct timespec){.tv_nsec = 1000L * atol(pause)}, NULL);
        PMPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &any, MPI_STATUS_IGNORE); // lets MPI receive
    }
    return status;
}
