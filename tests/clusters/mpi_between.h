/* mpi_between.h: four ranks of backend mpi, whose calls of MPI a test intercepts (MPI's profiling
 * interface): a chosen call of a function fails, is slow, or blocks until the other ranks are done;
 * and created and freed objects are counted. A process with a broken group is ended after a delay
 * (mpi_ends.sh); here that delay never ends. By default each rank is its own host (fake_hosts.c).
 */
#ifndef TESTS_CLUSTERS_MPI_BETWEEN_H
#define TESTS_CLUSTERS_MPI_BETWEEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/sync.h"
#include "ddp/group/backends.h"
#include "ddp/group/group_internal.h"
#include "ddp/group/mpi/mpi_internal.h"
#include "ddp/rendezvous/init.h"

#define PATIENCE_S 0.3 // timeout of the rank whose peers do not arrive
#define LONG_S     60  // timeout of all other ranks

enum { WORLD = 4, COUNT = 64 * 1024 }; // floats: three chunks of a host's half (hosts.c)

extern int fake_splits; // in fake_hosts.c

static Rendezvous me;

static struct {
    const char *name; // of the intercepted function; NULL: none
    int at, calls;    // the number of the intercepted call; calls so far
    int stops;        // the call blocks until the other ranks have met this often, and succeeds
    bool slow;        // the call is slow, and succeeds
} fault;

static struct {
    int groups, comms;      // MPI groups and communicators in use, without those of fake_splits
    int watches;            // call watches that have begun and not ended
    double least_s, most_s; // the watches' timeouts
    int naps, chain_naps;   // in waits for all messages; in waits for the next chunk (hosts.c)
    const char *last;       // the last one called of MPI_Test and MPI_Testall
    int awaited;            // requests of the last MPI_Testall
    bool only_listed;       // MPI_Iallreduce lists its calls, and sums nothing
    int sums, counts[4];    // number of these; their elements
    void *summed[4];        // their buffers
} seen = {.least_s = 1e9};

static SyncWord lingering; // number of threads that would end the process
static uint32_t broken;    // number of this rank's broken groups

// ---- between the backend and MPI ----------------------------------------------------------------

// A barrier that sleeps between two polls, as the backend does; MPI's own barrier spins.
static inline void all_are_here(void) {
    MPI_Request request;
    int done = 0;
    PMPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (PMPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) usleep(50);
}

static inline bool fails(const char *name) {
    if (strncmp(name, "Test", 4) == 0) seen.last = name;
    if (!fault.name || strcmp(fault.name, name) != 0 || ++fault.calls != fault.at) return false;
    for (int i = 0; i < fault.stops; i++) all_are_here();
    if (fault.slow) usleep(50000);
    return !fault.stops && !fault.slow;
}

#define FAILING(NAME, PARAMETERS, ARGUMENTS)                         \
    int NAME PARAMETERS {                                            \
        return fails(#NAME + 4) ? MPI_ERR_OTHER : P##NAME ARGUMENTS; \
    }
FAILING(MPI_Isend,
        (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
         MPI_Request *request),
        (data, count, type, to, tag, comm, request))
FAILING(MPI_Irecv,
        (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
         MPI_Request *request),
        (data, count, type, from, tag, comm, request))
FAILING(MPI_Testall, (int count, MPI_Request requests[], int *done, MPI_Status statuses[]),
        ((seen.awaited = count, count), requests, done, statuses))
FAILING(MPI_Test, (MPI_Request * request, int *done, MPI_Status *status), (request, done, status))
FAILING(MPI_Comm_group, (MPI_Comm comm, MPI_Group *group), (comm, (seen.groups++, group)))
FAILING(MPI_Group_incl, (MPI_Group all, int count, const int ranks[], MPI_Group *group),
        (all, count, ranks, (seen.groups++, group)))
FAILING(MPI_Group_free, (MPI_Group * group), ((seen.groups--, group)))
FAILING(MPI_Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made),
        (comm, group, tag, (seen.comms++, made)))
FAILING(MPI_Iprobe, (int from, int tag, MPI_Comm comm, int *there, MPI_Status *status),
        (from, tag, comm, there, status))
FAILING(MPI_Recv,
        (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
         MPI_Status *status),
        (data, count, type, from, tag, comm, status))
FAILING(MPI_Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler), (comm, handler))
FAILING(MPI_Comm_rank, (MPI_Comm comm, int *rank), (comm, rank))
FAILING(MPI_Comm_size, (MPI_Comm comm, int *size), (comm, size))
FAILING(MPI_Comm_free, (MPI_Comm * comm), ((seen.comms--, comm)))
FAILING(MPI_Bcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm),
        (data, count, type, root, comm))
FAILING(MPI_Allgather,
        (const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
         MPI_Datatype receive_type, MPI_Comm comm),
        (send, send_count, send_type, receive, receive_count, receive_type, comm))

int MPI_Iallreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request) {
    if (fails("Iallreduce")) return MPI_ERR_OTHER;
    if (!seen.only_listed) return PMPI_Iallreduce(send, receive, count, type, op, comm, request);
    assert_in_range(seen.sums, 0, 3);
    seen.summed[seen.sums] = receive;
    seen.counts[seen.sums++] = count;
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

// Another rank's memory is opened as /proc/PID/fd/N.
int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (strncmp(path, "/proc/", 6) == 0 && strstr(path, "/fd/") && fails("open")) {
        errno = EACCES;
        return -1;
    }
    return openat(AT_FDCWD, path, flags, mode);
}

// The backend sleeps less than 5 s between two polls, and longer only before it ends a process with
// a broken group.
int nanosleep(const struct timespec *time, struct timespec *left) {
    const bool in_chain = seen.last && strcmp(seen.last, "Test") == 0;
    if (time->tv_sec < 5) ++*(in_chain ? &seen.chain_naps : &seen.naps);
    if (time->tv_sec < 5) return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
    uint32_t before = sync_load(&lingering);
    while (!sync_claim(&lingering, before, before + 1)) before = sync_load(&lingering);
    sync_wake(&lingering);
    for (;;) pause();
}

CallWatch *__wrap_call_watch_begin(const char *reason, const char *what, double seconds);
CallWatch *__real_call_watch_begin(const char *reason, const char *what, double seconds);
void __wrap_call_watch_end(CallWatch *watch);
void __real_call_watch_end(CallWatch *watch);

CallWatch *__wrap_call_watch_begin(const char *reason, const char *what, double seconds) {
    seen.watches++;
    if (seconds < seen.least_s) seen.least_s = seconds;
    if (seconds > seen.most_s) seen.most_s = seconds;
    return __real_call_watch_begin(reason, what, seconds);
}

void __wrap_call_watch_end(CallWatch *watch) {
    seen.watches--;
    __real_call_watch_end(watch);
}

static inline void set_fault(int rank, const char *name, int at) {
    fault.name = me.rank == rank ? name : NULL;
    fault.at = at;
    fault.calls = 0;
    fault.stops = 0;
    fault.slow = false;
}

// ---- groups -------------------------------------------------------------------------------------

static inline ProcessGroup *open_group(int world, Error *err) {
    const PgOptions options = {.timeout_s = LONG_S};
    return pg_opener_mpi.open(&(PgEndpoint){.rank = me.rank, .world = world, .options = &options},
                              err);
}

// Opens a group of the first `world` ranks; returns NULL on the others. Rank `impatient` gets the
// short timeout once its group is open.
static inline ProcessGroup *open_first(int world, int impatient) {
    Error err = {0};
    if (me.rank >= world) return NULL;
    ProcessGroup *group = open_group(world, &err);
    if (!group) fail_msg("%s", err.message);
    if (me.rank == impatient) group->timeout_s = PATIENCE_S;
    return group;
}

// The number of communicators in use.
static inline int comms_left(void) {
    return seen.comms + fake_splits;
}

static inline void close_group(ProcessGroup *group) {
    broken += group && pg_check_sound(group, NULL) != 0;
    pg_close(group);
}

// The error contains each part of "a|b", and every later call fails with the same error.
static inline void check_words(ProcessGroup *group, const Error *err, const char *words) {
    char copy[512], *rest = copy;
    Error again = {0};
    assert_int_equal(err->status == STATUS_OK, 0);
    snprintf(copy, sizeof copy, "%s", words);
    for (char *part = strtok_r(copy, "|", &rest); part; part = strtok_r(NULL, "|", &rest))
        if (!strstr(err->message, part))
            fail_msg("rank %d: \"%s\" does not say \"%s\"", me.rank, err->message, part);
    assert_int_equal(pg_run(group, pg_barrier(), &again), -1);
    assert_string_equal(again.message, err->message);
}

static inline void expect_failure(ProcessGroup *group, Collective collective, const char *words) {
    Error err = {0};
    assert_int_equal(pg_run(group, collective, &err), -1);
    check_words(group, &err, words);
}

static inline void expect_success(ProcessGroup *group, Collective collective) {
    Error err = {0};
    if (pg_run(group, collective, &err) != 0) fail_msg("rank %d: %s", me.rank, err.message);
}

#endif
