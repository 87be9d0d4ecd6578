/* nccl_ranks.h: runs all ranks of an nccl group as processes: each opens its GPU, joins, runs the
 * body and leaves. The test's own process never uses CUDA: forked children of a process that does
 * cannot use it.
 */
#ifndef TESTS_RIGS_NCCL_RANKS_H
#define TESTS_RIGS_NCCL_RANKS_H

#include "tests/rigs/ranks.h"

#include "ddp/group/backends.h"
#include "ddp/rendezvous/init.h"
#include "ddp/store/net.h"

// Notes the problem of a failed call. Returns whether the call succeeded.
static inline bool ok(int status, const Error *error, Outcome *outcome) {
    if (status) problem(outcome, "%s", error->message);
    return status == 0;
}

typedef struct Play {
    int world;
    double timeout_s;
    bool one_gpu; // all ranks use the first GPU
    void (*body)(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome);
    const void *argument;
    const char *variable, *value; // set in rank 0's environment; NULL: nothing
} Play;

enum { WORLD_MAX = 4 };

// Returns the number of usable GPUs, at most WORLD_MAX; 0 also without NCCL. Determined in a child.
static inline int find_gpus(void) {
    setenv("DDPC_EMULATED_GPUS", "4", 0); // ignored on real GPUs
    if (!pg_opener_nccl.built) return 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int count = device_available("cuda");
        _exit(count < WORLD_MAX ? count : WORLD_MAX);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static inline int find_port(void) {
    Error err = {0};
    for (int attempt = 0; attempt < 1000; attempt++) {
        int port = 20000 + (int)((unsigned)(getpid() * 41 + attempt * 103) % 10000);
        int listener = net_listen("127.0.0.1", port, &err);
        if (listener < 0) continue;
        close(listener);
        return port;
    }
    fail_msg("no free port");
    return -1;
}

static inline void play_rank(const Play *play, int rank, int port, Outcome *outcome) {
    char name[16];
    Rendezvous me = {.rank = rank,
                     .world_size = play->world,
                     .local_rank = rank,
                     .local_world_size = play->world,
                     .master_addr = "127.0.0.1",
                     .master_port = port};
    alarm(120); // kills a rank that hangs
    if (rank == 0 && play->variable) setenv(play->variable, play->value, 1);
    snprintf(name, sizeof name, "cuda:%d", play->one_gpu ? 0 : rank);
    Device *device = device_open(name, &outcome->error);
    ProcessGroup *group =
        device ? init_process_group("nccl", &me, device, play->timeout_s, &outcome->error) : NULL;
    if (group)
        play->body(group, device, play->argument, outcome);
    else
        problem(outcome, "no group: %s", outcome->error.message);
    pg_close(group);
    if (device) device_close(device);
}

// Runs the ranks; outcomes[world] receives their reports, and the status of ranks that were killed.
static inline void play_all(const Play *play, Outcome *outcomes) {
    Outcome *shared = mmap(NULL, RANKS_MAX * sizeof *shared, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[RANKS_MAX];
    int port = find_port();
    assert_true(shared != MAP_FAILED);
    for (int r = 0; r < play->world; r++) {
        children[r] = fork();
        assert_true(children[r] >= 0);
        if (children[r] > 0) continue;
        play_rank(play, r, port, &shared[r]);
        _exit(0);
    }
    for (int r = 0; r < play->world; r++) {
        int status;
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
        if (status != shared[r].ends) problem(&shared[r], "it ended with wait status %d", status);
    }
    memcpy(outcomes, shared, RANKS_MAX * sizeof *shared);
    munmap(shared, RANKS_MAX * sizeof *shared);
}

// Also fails the test with the first problem that a rank reported.
static inline void play_well(const Play *play, Outcome *outcomes) {
    Outcome own[RANKS_MAX];
    if (!outcomes) outcomes = own;
    play_all(play, outcomes);
    for (int r = 0; r < play->world; r++)
        if (outcomes[r].problem[0])
            fail_msg("world %d, rank %d: %s", play->world, r, outcomes[r].problem);
}

#endif
