/* fake_pause.c: where MPI tells rank 0 to wait, it loses its core for FAKE_PAUSE microseconds.
 *
 * So it is on a crowded machine. Meanwhile the others, who need not wait, go on to what comes next,
 * and their messages come in: rank 0 finds them before it knows that its own wait is over. Loaded
 * before a program (LD_PRELOAD), it stands between the backend and MPI.
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
        PMPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &any, MPI_STATUS_IGNORE); // MPI looks around
    }
    return status;
}
