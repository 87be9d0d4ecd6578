/* ranks.h: runs all ranks of a process group in one test, as threads or as forked processes; or, in
 * a test under mpirun, this process's rank.
 *
 * A body runs once per rank and reports problems in its Outcome (in memory shared by parent and
 * children), because cmocka's asserts must run in the test's main thread. Ranks are forked only
 * while the test program has one thread. ThreadSanitizer cannot follow processes, so under it
 * process mode is skipped.
 */
#ifndef TESTS_RIGS_RANKS_H
#define TESTS_RIGS_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/sync.h"
#include "ddp/group/backends.h"
#include "ddp/group/shm/pg_shm.h"
#include "ddp/rendezvous/init.h"
#include "tests/rigs/heap_in_use.h"
#include "tests/rigs/sanitizers.h"

enum { RANKS_MAX = 8 };

// AS_MPI: this process is one of the ranks that mpirun has started.
typedef enum Mode { AS_THREADS, AS_PROCESSES, AS_MPI } Mode;

static const char *const mode_names[] = {"threads", "processes", "mpi"};

typedef struct Outcome {
    char problem[400]; // the first problem; "" if none
    Error error;       // an expected error, for the test to compare
    long number;       // any result, for the test to compare
    int ends;          // the wait status that the test expects of this rank, if not 0
    SyncWord failed;   // set by a body; other ranks wait for it
} Outcome;

typedef struct Ranks Ranks;
typedef void RankBody(ProcessGroup *group, const void *argument, Outcome *outcome);

struct Ranks {
    SyncWord published; // 1: `address` is valid
    char address[PG_ADDRESS_MAX];
    Outcome outcomes[RANKS_MAX];
};

typedef struct RankThread {
    pthread_t thread;
    ProcessGroup *group;
    RankBody *body;
    const void *argument;
    Outcome *outcome;
} RankThread;

__attribute__((format(printf, 2, 3))) static inline void problem(Outcome *outcome,
                                                                 const char *format, ...) {
    if (outcome->problem[0]) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(outcome->problem, sizeof outcome->problem, format, arguments);
    va_end(arguments);
}

static inline void *rank_thread(void *context) {
    RankThread *rank = context;
    rank->body(rank->group, rank->argument, rank->outcome);
    pg_close(rank->group);
    return NULL;
}

static inline void ranks_as_threads(Ranks *ranks, int world, const PgOptions *options,
                                    RankBody *body, const void *argument) {
    ProcessGroup *groups[RANKS_MAX];
    RankThread threads[RANKS_MAX];
    Error error = {0};
    assert_int_equal(pg_shm_threads(world, options, groups, &error), 0);
    for (int r = 0; r < world; r++) {
        threads[r] = (RankThread){
            .group = groups[r], .body = body, .argument = argument, .outcome = &ranks->outcomes[r]};
        assert_int_equal(pthread_create(&threads[r].thread, NULL, rank_thread, &threads[r]), 0);
    }
    for (int r = 0; r < world; r++) pthread_join(threads[r].thread, NULL);
}

static inline void rank_process(Ranks *ranks, int rank, int world, const PgOptions *options,
                                RankBody *body, const void *argument) {
    Outcome *outcome = &ranks->outcomes[rank];
    PgEndpoint endpoint = {.rank = rank, .world = world, .options = options};
    if (rank == 0) {
        pg_opener_shm.create(&endpoint, &outcome->error);
        memcpy(ranks->address, endpoint.address, sizeof ranks->address);
        sync_store(&ranks->published, 1);
    } else if (sync_wait(&ranks->published, 1, NULL, clock_ns() + 30000000000u, SYNC_SPINS) ==
               SYNC_DONE) {
        memcpy(endpoint.address, ranks->address, sizeof ranks->address);
        pg_opener_shm.reach(&endpoint, &outcome->error);
    }
    ProcessGroup *group = endpoint.found ? pg_opener_shm.open(&endpoint, &outcome->error) : NULL;
    if (group)
        body(group, argument, outcome);
    else
        problem(outcome, "no group: %s", outcome->error.message);
    pg_close(group);
}

static inline void ranks_as_processes(Ranks *ranks, int world, const PgOptions *options,
                                      RankBody *body, const void *argument) {
    pid_t children[RANKS_MAX];
    for (int r = 0; r < world; r++) {
        children[r] = fork();
        assert_true(children[r] >= 0);
        if (children[r] > 0) continue;
        rank_process(ranks, r, world, options, body, argument);
        _exit(0);
    }
    // Waited for in rank order: a higher rank that dies first stays a zombie until its turn.
    for (int r = 0; r < world; r++) {
        int status;
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
        if (status == ranks->outcomes[r].ends) continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
            problem(&ranks->outcomes[r], "exit status %d", WEXITSTATUS(status));
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
            problem(&ranks->outcomes[r], "signal %d", WTERMSIG(status));
    }
}

// Six ranks are three hosts with two ranks each, which only MPI's groups have.
static inline int largest_world(Mode mode) {
    return mode == AS_MPI ? 6 : 5;
}

// Reads rank and world size from the launcher's variables; prepare compares them with MPI's.
static inline void join_mpi(void) {
    Rendezvous me;
    Error error = {0};
    char rank[16], world[16];
    must_do(init_from_env(&me, false, &error), &error);
    must_do(pg_opener_mpi.prepare(me.rank, me.world_size, 60, &error), &error);
    snprintf(rank, sizeof rank, "%d", me.rank);
    setenv("TEST_MPI_RANK", rank, 1);
    snprintf(world, sizeof world, "%d", me.world_size);
    setenv("TEST_MPI_WORLD", world, 1);
}

// Runs this process's rank, if the world has the size of mpirun's.
static inline void ranks_of_mpi(Ranks *ranks, int world, const PgOptions *options, RankBody *body,
                                const void *argument) {
    const int rank = atoi(getenv("TEST_MPI_RANK"));
    Error error = {0};
    if (world != atoi(getenv("TEST_MPI_WORLD"))) return;
    PgEndpoint endpoint = {.rank = rank, .world = world, .options = options};
    ProcessGroup *group = pg_opener_mpi.open(&endpoint, &error);
    if (!group) fail_msg("%s", error.message);
    body(group, argument, &ranks->outcomes[rank]);
    pg_close(group);
}

// Runs the body on all ranks; fails the test with the first reported problem. outcomes (may be
// NULL) receives the ranks' reports. Threads repeat the body until it frees all that it allocates
// (heap_in_use.h).
static inline void play_ranks_with(Mode mode, int world, const PgOptions *options, RankBody *body,
                                   const void *argument, Outcome outcomes[RANKS_MAX]) {
    Ranks *ranks =
        mmap(NULL, sizeof *ranks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(ranks != MAP_FAILED);
    HeapRuns runs = {0};
    while (mode == AS_THREADS && heap_run(&runs)) {
        memset(ranks, 0, sizeof *ranks);
        ranks_as_threads(ranks, world, options, body, argument);
    }
    if (runs.left > 0) problem(&ranks->outcomes[0], "left %zu bytes allocated", runs.left);
    if (mode == AS_PROCESSES)
        ranks_as_processes(ranks, world, options, body, argument);
    else if (mode == AS_MPI)
        ranks_of_mpi(ranks, world, options, body, argument);
    for (int r = 0; r < world; r++)
        if (ranks->outcomes[r].problem[0])
            fail_msg("%s, world %d, rank %d: %s", mode_names[mode], world, r,
                     ranks->outcomes[r].problem);
    if (outcomes) memcpy(outcomes, ranks->outcomes, sizeof ranks->outcomes);
    munmap(ranks, sizeof *ranks);
}

static inline void play_ranks(Mode mode, int world, double timeout_s, RankBody *body,
                              const void *argument, Outcome outcomes[RANKS_MAX]) {
    play_ranks_with(mode, world, &(PgOptions){.timeout_s = timeout_s}, body, argument, outcomes);
}

#endif
