/* mpi_rank.c: a rank of backend mpi whose job ends in an unusual way; started and checked by
 * mpi_ends.sh.
 *
 *     mpi_rank late SECONDS     rank 0 leaves main SECONDS after the others
 *     mpi_rank goes-on          the group breaks, and rank 0 continues
 *     mpi_rank no-abort         the same, and MPI_Abort does not return
 *     mpi_rank single           MPI was initialized before, without thread support
 */
#include <mpi.h>
#include <string.h>
#include <unistd.h>

#include "ddp/group/backends.h"
#include "ddp/rendezvous/init.h"

enum { FOR_EVER_S = 600 }; // longer than the test

static const char *what;

static bool is(const char *word) {
    return strcmp(what, word) == 0;
}

// Intercepts the backend's call.
int MPI_Abort(MPI_Comm comm, int status) {
    if (is("no-abort")) sleep(FOR_EVER_S);
    return PMPI_Abort(comm, status);
}

static int use_group(ProcessGroup *group, int rank, const char *seconds, Error *err) {
    if (!is("late") && rank > 0) sleep(FOR_EVER_S); // never sends to rank 0, which times out
    int status = pg_run(group, pg_barrier(), err);
    if (!is("late")) return status;
    pg_close(group);
    if (rank != 0) return status;
    sleep((unsigned)atoi(seconds));
    printf("rank 0 has saved\n");
    return status;
}

int main(int argc, char **argv) {
    Rendezvous me;
    Error err = {0};
    what = argc > 1 ? argv[1] : "";
    const char *seconds = argc > 2 ? argv[2] : "0", *patience = argc > 3 ? argv[3] : "2";
    if (is("single")) MPI_Init(NULL, NULL);
    must_do(init_from_env(&me, false, &err), &err);
    double timeout_s = atof(patience);
    must_do(pg_opener_mpi.prepare(me.rank, me.world_size, timeout_s, &err), &err);
    PgEndpoint endpoint = {
        .rank = me.rank, .world = me.world_size, .options = &(PgOptions){.timeout_s = timeout_s}};
    ProcessGroup *group = must_get(pg_opener_mpi.open(&endpoint, &err), &err);
    if (use_group(group, me.rank, seconds, &err) == 0) return STATUS_OK;
    fprintf(stderr, "rank %d: %s\n", me.rank, err.message);
    sleep(FOR_EVER_S);
    error_exit(&err);
}
