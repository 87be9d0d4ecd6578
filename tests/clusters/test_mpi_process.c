/* test_mpi_process.c: how a process initializes and finalizes MPI (ddp/group/mpi/process.c): which
 * launcher is recognized, which worlds are refused, the timeout of each watched call, and when the
 * job is aborted. MPI and the environment are simulated by this file.
 */
#include "tests/rigs/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/format.h"
#include "ddp/group/mpi/mpi_internal.h"

#ifdef OPEN_MPI
static const char *const STARTED = "PMIX_RANK", *const REACHED = "PMIX_SERVER_URI2";
#else
static const char *const STARTED = "PMI_RANK", *const REACHED = "PMI_PORT";
#endif

static struct {
    int running, level, rank, world, finalized;
    int init_result;
    void (*at_exit)(int status, void *argument);
    void *argument;
    const char *reason; // of call_watch_begin; must be NULL
    char notes[400];
} mpi;

static int aborted[2]; // a pipe with the status of MPI_Abort in the lingering thread
static _Thread_local bool lingers;

static void note(const char *format, ...) {
    char text[100];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    format_append(mpi.notes, sizeof mpi.notes, "%s%s", *mpi.notes ? " " : "", text);
}

// ---- simulated functions ------------------------------------------------------------------------

int MPI_Error_string(int code, char *text, int *length) {
    *length = snprintf(text, MPI_MAX_ERROR_STRING, "error %d", code);
    return MPI_SUCCESS;
}

int MPI_Abort(MPI_Comm comm, int status) {
    assert_true(comm == MPI_COMM_WORLD);
    if (!lingers) note("abort(%d)", status);
    if (lingers && write(aborted[1], &status, sizeof status) != sizeof status) abort();
    return MPI_SUCCESS;
}

int MPI_Finalized(int *flag) {
    *flag = mpi.finalized;
    return MPI_SUCCESS;
}

int MPI_Finalize(void) {
    note("finalize");
    return MPI_SUCCESS;
}

int MPI_Initialized(int *flag) {
    *flag = mpi.running;
    return MPI_SUCCESS;
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided) {
    assert_true(!argc && !argv && wanted == MPI_THREAD_MULTIPLE);
    *provided = MPI_THREAD_MULTIPLE;
    note("init");
    return mpi.init_result;
}

int MPI_Query_thread(int *level) {
    *level = mpi.level;
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank) {
    assert_true(comm == MPI_COMM_WORLD);
    *rank = mpi.rank;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *size) {
    assert_true(comm == MPI_COMM_WORLD);
    *size = mpi.world;
    return MPI_SUCCESS;
}

int MPI_Bcast(void *text, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    assert_true(type == MPI_CHAR && comm == MPI_COMM_WORLD);
    note("bcast(%s,%d,%d)", (const char *)text, count, root);
    return MPI_SUCCESS;
}

CallWatch *call_watch_begin(const char *reason, const char *what, double seconds) {
    if (!lingers) note("[%s,%g", what, seconds);
    return reason ? NULL : (CallWatch *)&mpi;
}

void call_watch_end(CallWatch *watch) {
    assert_ptr_equal(watch, &mpi);
    note("]");
}

int __wrap_on_exit(void (*function)(int status, void *argument), void *argument);
int __wrap_on_exit(void (*function)(int status, void *argument), void *argument) {
    mpi.at_exit = function;
    mpi.argument = argument;
    return 0;
}

// Called only by the lingering thread.
int __wrap_nanosleep(const struct timespec *duration, struct timespec *left);
int __wrap_nanosleep(const struct timespec *duration, struct timespec *left) {
    lingers = duration->tv_sec == 5 && duration->tv_nsec == 0 && !left;
    return 0;
}

// ---- initialization -----------------------------------------------------------------------------

static const char *const names[] = {
    "OMPI_COMM_WORLD_SIZE",
    "PMIX_RANK",
    "PMIX_SERVER_URI2",
    "PMIX_SERVER_URI3",
    "PMI_RANK",
    "PMI_FD",
    "PMI_PORT",
    "DDPRUN_STORE",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
};

static int begin(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    memset(&mpi, 0, sizeof mpi);
    mpi.level = MPI_THREAD_MULTIPLE;
    mpi.rank = 1;
    mpi.world = 3;
    setenv(STARTED, "1", 1);
    return 0;
}

static void refused(int rank, int world, int status, const char *begin_of_message) {
    Error err = {0};
    assert_int_equal(mpi_prepare(rank, world, 60, &err), -1);
    if (strncmp(err.message, begin_of_message, strlen(begin_of_message)) != 0)
        fail_msg("\"%s\"", err.message);
    assert_int_equal(err.status, status);
    assert_null(mpi.at_exit);
}

static void the_starter_is_told_apart(void **state) {
    (void)state;
    Error err = {0};
    assert_int_equal(mpi_prepare(1, 3, 60, &err), 0);
    assert_string_equal(mpi.notes, "[MPI_Init_thread,60 init ]");
    free(mpi.argument);
    begin(state);
    setenv("DDPRUN_STORE", "1", 1);
    refused(1, 3, STATUS_USAGE, "rank 1: ddprun does not start MPI's ranks: mpirun.");
    begin(state);
    setenv(STARTED, "", 1); // the same as unset
    refused(1, 3, STATUS_USAGE, "rank 1 of 3: this program is built with ");
    setenv("SLURM_STEP_ID", "0", 1);
    refused(1, 3, STATUS_USAGE, "rank 1 of 3: this program is built with ");
    setenv("SLURM_PROCID", "1", 1);
    refused(1, 3, STATUS_USAGE, "rank 1: this program is built with ");
    unsetenv("SLURM_STEP_ID");
    refused(1, 3, STATUS_USAGE, "rank 1 of 3: this program is built with ");
    assert_string_equal(mpi.notes, ""); // no call of MPI
    mpi.rank = 0;
    mpi.world = 1;
    assert_int_equal(mpi_prepare(0, 1, 60, &err), 0); // one rank needs no launcher
    assert_string_equal(mpi.notes, "[MPI_Init_thread,60 init ]");
    free(mpi.argument);
}

static void the_world_is_compared(void **state) {
    (void)state;
    Error err = {0};
    mpi.running = 1;
    assert_int_equal(mpi_prepare(1, 3, 60, &err), 0);
    refused(0, 3, STATUS_USAGE, "this is rank 0 of 3 in the environment and rank 1 of 3 in ");
    refused(1, 2, STATUS_USAGE, "this is rank 1 of 2 in the environment and rank 1 of 3 in ");
    unsetenv(STARTED); // MPI was initialized by the program itself
    assert_int_equal(mpi_prepare(1, 3, 60, &err), 0);
    mpi.level = MPI_THREAD_SERIALIZED;
    refused(1, 3, STATUS_FAILED, "MPI was started without MPI_THREAD_MULTIPLE");
    assert_string_equal(mpi.notes, "");
}

static void what_starts_is_given_time(void **state) {
    (void)state;
    Error err = {0};
    unsetenv("OMPI_MCA_btl_tcp_links");
    assert_int_equal(mpi_prepare(1, 3, 29, &err), 0); // the timeout is at least 30 s
    assert_string_equal(getenv("OMPI_MCA_btl_tcp_links"), "2");
    assert_string_equal(mpi.notes, "[MPI_Init_thread,30 init ]");
    free(mpi.argument);
    begin(state);
    setenv("OMPI_MCA_btl_tcp_links", "5", 1);
    mpi.init_result = 16;
    refused(1, 3, STATUS_FAILED, "MPI_Init_thread: error 16");
    assert_string_equal(getenv("OMPI_MCA_btl_tcp_links"), "5"); // the user's value is kept
    assert_string_equal(mpi.notes, "[MPI_Init_thread,60 init ]");
}

static void whether_it_can_be_reached(void **state) {
    (void)state;
    assert_false(mpi_started());
    setenv(REACHED, "", 1);
    assert_false(mpi_started());
    setenv(REACHED, "x", 1);
    assert_true(mpi_started());
}

static void an_address_is_told(void **state) {
    (void)state;
    char text[8] = "here";
    mpi_tell(text, 8, 2.5);
    assert_string_equal(mpi.notes, "[MPI_Bcast of rank 0's address,2.5 bcast(here,8,0) ]");
}

// ---- finalization -------------------------------------------------------------------------------

static void ends(int status, const char *notes) {
    Error err = {0};
    assert_int_equal(mpi_prepare(1, 3, 60, &err), 0);
    mpi.notes[0] = '\0';
    mpi.at_exit(status, mpi.argument);
    assert_string_equal(mpi.notes, notes);
}

static void how_a_process_ends(void **state) {
    (void)state;
    ends(STATUS_OK, "[MPI_Finalize,60 finalize ]");
    begin(state);
    ends(7, "[MPI_Abort,5 abort(7) [MPI_Finalize,60 finalize ]"); // the simulated abort returns
    begin(state);
    mpi.finalized = 1;
    ends(7, "");
    free(mpi.argument);
}

// After 5 s, in a thread of its own.
static void a_broken_group_ends_the_job(void **state) {
    (void)state;
    int status = 0;
    assert_int_equal(pipe(aborted), 0);
    mpi_end_soon();
    assert_int_equal(read(aborted[0], &status, sizeof status), sizeof status);
    assert_int_equal(status, STATUS_FAILED);
}

#define PLAYED(test) cmocka_unit_test_setup(test, begin)

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAYED(the_starter_is_told_apart),   PLAYED(the_world_is_compared),
        PLAYED(what_starts_is_given_time),   PLAYED(whether_it_can_be_reached),
        PLAYED(an_address_is_told),          PLAYED(how_a_process_ends),
        PLAYED(a_broken_group_ends_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
