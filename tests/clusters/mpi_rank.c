/* mpi_rank.c: a rank of backend mpi whose job ends in an unusual way; mpi_ends.sh starts it, and
 * looks at how.
 *
 *     mpi_rank late SECONDS     rank 0 leaves main so long after the others
 *     mpi_rank goes-on          the group breaks, and rank 0 continues
 *     mpi_rank no-abort         so, and MPI_Abort does not return, either
 *     mpi_rank hears            rank 2 never comes; rank 0 loses patience first, rank 1 hears why
 *     mpi_rank chain            so, but rank 0 waits for rank 1, which waits for rank 2
 *     mpi_rank single           MPI runs already, without threads
 *     mpi_rank fast             rank 0 asks for fast sums, and the others do not
 */
#include <mpi.h>
#include <string.h>
#include <unistd.h>

#include "ddp/group/backends.h"
#include "ddp/rendezvous/init.h"

enum { FOR_EVER_S = 600 }; // the test ends earlier

static const char *what;

static bool is(const char *word) {
    return strcmp(what, word) == 0;
}

// Stands between the backend and MPI.
int MPI_Abort(MPI_Comm comm, int status) {
    if (is("no-abort")) sleep(FOR_EVER_S);
    return PMPI_Abort(comm, status);
}

// Rank 1 waits, too, and has more patience than rank 0.
static bool has_two_who_wait(void) {
    return is("hears") || is("chain");
}

// Rank 0 waits for a rank that never comes, or for one that waits for it.
static int break_group(ProcessGroup *group, int rank, Error *err) {
    const int waiting = has_two_who_wait() ? 2 : 1;
    float x;
    if (rank >= waiting) sleep(FOR_EVER_S);
    return pg_run(group, is("chain") ? pg_recv(&x, 1, PG_F32, rank + 1) : pg_barrier(), err);
}

static int use_group(ProcessGroup *group, int rank, const char *seconds, Error *err) {
    float x = 1;
    if (is("fast") && rank == 0 && pg_use_fast_sums(group, err) != 0) return -1;
    if (is("fast")) return pg_run(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), err);
    if (!is("late")) return break_group(group, rank, err);
    int status = pg_run(group, pg_barrier(), err);
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
    if (has_two_who_wait() && me.rank == 1) timeout_s = FOR_EVER_S;
    must_do(pg_opener_mpi.prepare(me.rank, me.world_size, timeout_s, &err), &err);
    PgEndpoint endpoint = {
        .rank = me.rank, .world = me.world_size, .options = &(PgOptions){.timeout_s = timeout_s}};
    ProcessGroup *group = must_get(pg_opener_mpi.open(&endpoint, &err), &err);
    if (use_group(group, me.rank, seconds, &err) == 0) return STATUS_OK;
    fprintf(stderr, "rank %d: %s\n", me.rank, err.message);
    if (is("hears") && me.rank == 0) sleep(3); // so that the job's end is not taken for the message
    if (!is("hears")) sleep(FOR_EVER_S);
    error_exit(&err);
}
