/* process.c: MPI in this process: how it is started, whether the right starter has started it, and
 * how it ends.
 *
 * The wrong mpirun, or the wrong srun --mpi, does not fail: it gives as many processes as were
 * asked for, each alone in a world of one. So the environment, which says how many there should be,
 * is asked first, and compared with what MPI sees.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/group/mpi/internal.h"

#define START_S 30.0 // MPI_Init has at least so long: it starts processes and opens connections

#ifdef OPEN_MPI
#define MPI_NAME "Open MPI"
#define MPIRUN   "mpirun.openmpi"
#define SRUN     "srun --mpi=pmix"
static const char *const STARTED[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", NULL};
#else
#define MPI_NAME "MPICH"
#define MPIRUN   "mpirun.mpich"
#define SRUN     "srun --mpi=pmi2"
static const char *const STARTED[] = {"PMI_RANK", "PMI_FD", "PMI_PORT", NULL};
#endif

int mpi_settle(int result, const char *what, Error *err) {
    char text[MPI_MAX_ERROR_STRING] = "?";
    int length;
    if (result == MPI_SUCCESS) return 0;
    MPI_Error_string(result, text, &length);
    return error_set(err, STATUS_FAILED, "%.*s: %s", (int)strcspn(what, "("), what, text);
}

// ---- the watchdog -------------------------------------------------------------------------------

struct MpiWatch {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t returned;
    bool over;
    const char *what;
    double seconds;
};

static void *watch(void *context) {
    MpiWatch *w = context;
    const struct timespec deadline = clock_deadline(w->seconds);
    int status = 0;
    pthread_mutex_lock(&w->mutex);
    while (!w->over && status != ETIMEDOUT)
        status = pthread_cond_clockwait(&w->returned, &w->mutex, CLOCK_MONOTONIC, &deadline);
    if (!w->over) {
        fprintf(stderr, "error: %s did not return within %g s: are all ranks there?\n", w->what,
                w->seconds);
        _exit(STATUS_FAILED);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

MpiWatch *mpi_watch_begin(const char *what, double seconds) {
    MpiWatch *w = memory_zalloc(sizeof *w);
    w->what = what;
    w->seconds = seconds;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->returned, NULL);
    int status = pthread_create(&w->thread, NULL, watch, w);
    CHECK(status == 0, "no thread to watch over %s: %s", what, strerror(status));
    return w;
}

void mpi_watch_end(MpiWatch *w) {
    pthread_mutex_lock(&w->mutex);
    w->over = true;
    pthread_cond_signal(&w->returned);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->returned);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

// ---- the end ------------------------------------------------------------------------------------

static void abort_job(int status) {
    (void)mpi_watch_begin("MPI_Abort", PG_MPI_LINGER_S);
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void *linger(void *nothing) {
    const struct timespec pause = {.tv_sec = (time_t)PG_MPI_LINGER_S};
    (void)nothing;
    nanosleep(&pause, NULL);
    fprintf(stderr, "error: the process goes on with a group that has broken: MPI_Abort\n");
    abort_job(STATUS_FAILED);
    return NULL;
}

void mpi_end_soon(void) {
    pthread_t thread;
    int status = pthread_create(&thread, NULL, linger, NULL);
    CHECK(status == 0, "no thread to end the process: %s", strerror(status));
    pthread_detach(thread);
}

// Runs at exit() or at the return from main. MPI_Finalize waits for the others, who may have more
// to do than this rank, for as long as a collective would. A process that ends by _exit after an
// error is noticed by the starter, which ends the others.
static void leave_mpi(int status, void *timeout_s) {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized) return;
    if (status != STATUS_OK) abort_job(status);
    MpiWatch *w = mpi_watch_begin("MPI_Finalize", *(double *)timeout_s);
    MPI_Finalize();
    mpi_watch_end(w);
    free(timeout_s);
}

// ---- the beginning ------------------------------------------------------------------------------

static bool is_set(const char *name) {
    const char *text = getenv(name);
    return text && *text;
}

static bool started_by_us(void) {
    for (int i = 0; STARTED[i]; i++)
        if (is_set(STARTED[i])) return true;
    return false;
}

// Runs before MPI_Init, which in some of these cases ends the process with words of its own.
static int check_starter(int rank, int world, Error *err) {
    if (is_set("DDPRUN_STORE"))
        return error_set(err, STATUS_USAGE,
                         "rank %d: ddprun does not start MPI's ranks: %s -np %d PROGRAM --backend "
                         "mpi ..., without ddprun",
                         rank, MPIRUN, world);
    if (started_by_us()) return 0;
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
    // Two connections between two hosts: on a slow link they carry what one leaves unused.
    setenv("OMPI_MCA_btl_tcp_links", "2", 0);
    MpiWatch *w = mpi_watch_begin("MPI_Init_thread", timeout_s < START_S ? START_S : timeout_s);
    int result = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    mpi_watch_end(w);
    if (MPI(result, err) != 0) return -1;
    double *patience = memory_zalloc(sizeof *patience);
    *patience = timeout_s;
    CHECK(on_exit(leave_mpi, patience) == 0, "no room for another function at exit");
    return 0;
}

int pg_mpi_prepare(int rank, int world, double timeout_s, Error *err) {
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

void pg_mpi_tell(char *text, int capacity, double timeout_s) {
    MpiWatch *w = mpi_watch_begin("MPI_Bcast of rank 0's address", timeout_s);
    MPI_Bcast(text, capacity, MPI_CHAR, 0, MPI_COMM_WORLD);
    mpi_watch_end(w);
}

bool pg_mpi_built(void) {
    return true;
}
