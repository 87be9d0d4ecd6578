/* process.c: MPI in this process: how it is started, which launcher started it, and how it ends.
 *
 * The wrong mpirun, or the wrong srun --mpi, does not fail: it starts as many processes as
 * requested, each in a world of one. So the rank and world size of the environment are compared
 * with MPI's.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/group/mpi/mpi_internal.h"

#define LINGER_S 5.0  // until a process with a broken group is ended
#define START_S  30.0 // least timeout of MPI_Init, which starts processes and connects them

#ifdef OPEN_MPI
#define MPI_NAME "Open MPI"
#define MPIRUN   "mpirun.openmpi"
#define SRUN     "srun --mpi=pmix"
static const char *const STARTED[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", NULL};
static const char *const REACHED_BY[] = {"PMIX_SERVER_URI2", "PMIX_SERVER_URI3", NULL};
#else
#define MPI_NAME "MPICH"
#define MPIRUN   "mpirun.mpich"
#define SRUN     "srun --mpi=pmi2"
static const char *const STARTED[] = {"PMI_RANK", "PMI_FD", "PMI_PORT", NULL};
static const char *const REACHED_BY[] = {"PMI_FD", "PMI_PORT", NULL};
#endif

int mpi_settle(int result, const char *what, Error *err) {
    char text[MPI_MAX_ERROR_STRING] = "?";
    int length;
    if (result == MPI_SUCCESS) return 0;
    MPI_Error_string(result, text, &length);
    return error_set(err, STATUS_FAILED, "%.*s: %s", (int)strcspn(what, "("), what, text);
}

// ---- the end -----------------------------------------------------------------------------------

static void abort_job(int status) {
    (void)call_watch_begin(NULL, "MPI_Abort", LINGER_S);
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void *linger(void *nothing) {
    const struct timespec pause = {.tv_sec = (time_t)LINGER_S};
    (void)nothing;
    nanosleep(&pause, NULL);
    fprintf(stderr, "error: the process still runs with a broken group: MPI_Abort\n");
    abort_job(STATUS_FAILED);
    return NULL;
}

void mpi_end_soon(void) {
    pthread_t thread;
    int status = pthread_create(&thread, NULL, linger, NULL);
    CHECK(status == 0, "no thread to end the process: %s", strerror(status));
}

// Runs at exit() and at the return from main. MPI_Finalize waits for the other ranks, which may run
// longer, for as long as a collective would. A process that ends by _exit after an error is
// reported by the launcher, which ends the others.
static void leave_mpi(int status, void *timeout_s) {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized) return;
    if (status != STATUS_OK) abort_job(status);
    CallWatch *w = call_watch_begin(NULL, "MPI_Finalize", *(double *)timeout_s);
    MPI_Finalize();
    call_watch_end(w);
    free(timeout_s);
}

// ---- the beginning -----------------------------------------------------------------------------

static bool is_set(const char *name) {
    const char *text = getenv(name);
    return text && *text;
}

static bool any_is_set(const char *const *names) {
    while (*names && !is_set(*names)) names++;
    return *names != NULL;
}

// Where the starter's server cannot be reached, MPI_Init would end the process.
bool mpi_started(void) {
    return any_is_set(REACHED_BY);
}

// Runs before MPI_Init, which in some of these cases ends the process with a message of its own.
static int check_starter(int rank, int world, Error *err) {
    if (is_set("DDPRUN_STORE"))
        return error_set(err, STATUS_USAGE,
                         "rank %d: ddprun does not start MPI's ranks: %s -np %d PROGRAM --backend "
                         "mpi ..., without ddprun",
                         rank, MPIRUN, world);
    if (any_is_set(STARTED)) return 0;
    if (is_set("SLURM_STEP_ID") && is_set("SLURM_PROCID"))
        return error_set(err, STATUS_USAGE,
                         "rank %d: this program is built with %s, of which srun knows nothing "
                         "here: start it with %s",
                         rank, MPI_NAME, SRUN);
    if (world == 1) return 0;
    return error_set(err, STATUS_USAGE,
                     "rank %d of %d: this program is built with %s, and something else has "
                     "started it: start it with %s -np %d, or with %s",
                     rank, world, MPI_NAME, MPIRUN, world, SRUN);
}

static int start_mpi(double timeout_s, Error *err) {
    int provided = MPI_THREAD_SINGLE;
    // Two connections between two hosts use more of a slow link than one.
    setenv("OMPI_MCA_btl_tcp_links", "2", 0);
    CallWatch *w =
        call_watch_begin(NULL, "MPI_Init_thread", timeout_s < START_S ? START_S : timeout_s);
    int result = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    call_watch_end(w);
    if (mpi_settle(result, "MPI_Init_thread", err) != 0) return -1;
    double *patience = memory_zalloc(sizeof *patience);
    *patience = timeout_s;
    CHECK(on_exit(leave_mpi, patience) == 0, "no room for another function at exit");
    return 0;
}

int mpi_prepare(int rank, int world, double timeout_s, Error *err) {
    int running = 0, level = MPI_THREAD_SINGLE, seen_rank = 0, seen_world = 0;
    MPI_Initialized(&running);
    if (!running && (check_starter(rank, world, err) != 0 || start_mpi(timeout_s, err) != 0))
        return -1;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE)
        return error_set(err, STATUS_FAILED, "MPI was started without MPI_THREAD_MULTIPLE");
    MPI_Comm_rank(MPI_COMM_WORLD, &seen_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &seen_world);
    if (seen_rank == rank && seen_world == world) return 0;
    return error_set(err, STATUS_USAGE,
                     "this is rank %d of %d in the environment and rank %d of %d in %s: start it "
                     "with %s -np %d, or with %s, and set neither RANK nor WORLD_SIZE",
                     rank, world, seen_rank, seen_world, MPI_NAME, MPIRUN, world, SRUN);
}

void mpi_tell(char *text, int capacity, double timeout_s) {
    CallWatch *w = call_watch_begin(NULL, "MPI_Bcast of rank 0's address", timeout_s);
    MPI_Bcast(text, capacity, MPI_CHAR, 0, MPI_COMM_WORLD);
    call_watch_end(w);
}
