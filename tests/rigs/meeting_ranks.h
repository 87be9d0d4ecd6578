/* meeting_ranks.h: runs ranks as processes that share only a Rendezvous: each joins, adds up the
 * ranks' numbers, leaves, and reports its result to the test.
 */
#ifndef TESTS_RIGS_MEETING_RANKS_H
#define TESTS_RIGS_MEETING_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp/rendezvous/init.h"
#include "ddp/store/net.h"
#include "ddp/store/store.h"

enum { RANKS_MAX = 10, LONG_S = 20 };

typedef struct Outcome {
    int status; // 0: the group was created and its sum is correct
    char message[400];
} Outcome;

// Returns a port without a listener, outside the range of automatic ports and different in tests
// that run at the same time.
static inline int free_port(void) {
    for (int attempt = 0; attempt < 1000; attempt++) {
        int port = 20000 + (int)((unsigned)(getpid() * 37 + attempt * 101) % 10000);
        Error err = {0};
        int listener = net_listen("127.0.0.1", port, &err);
        if (listener < 0) continue;
        close(listener);
        return port;
    }
    fail_msg("no free port");
    return -1;
}

static inline Rendezvous place(int rank, int world_size, int port) {
    return (Rendezvous){.rank = rank,
                        .world_size = world_size,
                        .local_rank = rank,
                        .local_world_size = world_size,
                        .master_addr = "127.0.0.1",
                        .master_port = port};
}

static inline int open_descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

// A rank's life: joins, adds up the ranks' numbers, leaves; nothing may stay open.
static inline Outcome live(const Rendezvous *me, double timeout_s) {
    Error err = {0};
    const int before = open_descriptors();
    ProcessGroup *group = init_process_group("auto", me, NULL, timeout_s, &err);
    double sum = me->rank + 1, expected = me->world_size * (me->world_size + 1) / 2.0;
    if (group && pg_run(group, pg_all_reduce(&sum, 1, PG_F64, PG_SUM), &err) == 0 &&
        sum != expected) {
        error_set(&err, STATUS_FAILED, "the sum is %g, not %g", sum, expected);
    }
    pg_close(group);
    const int left = open_descriptors() - before;
    if (left != 0) err = (Error){0};
    if (left != 0) error_set(&err, STATUS_FAILED, "%d descriptors are left, after a meeting", left);
    Outcome outcome = {.status = err.status};
    snprintf(outcome.message, sizeof outcome.message, "%.399s", err.message);
    return outcome;
}

typedef Outcome Life(const Rendezvous *me, double timeout_s);

static inline pid_t start_rank(const Rendezvous *me, double timeout_s, Life *life, int pipe_fd) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    alarm(60); // kills a rank that hangs
    // Every other rank has no stdin, as in a daemon, so that its first descriptor is 0.
    if (me->rank % 2 == 0) close(STDIN_FILENO);
    Outcome outcome = life(me, timeout_s);
    _exit(write(pipe_fd, &outcome, sizeof outcome) == sizeof outcome ? 0 : 99);
}

static inline void run_lives(const Rendezvous *ranks, int count, double timeout_s, Life *life,
                             Outcome *outcomes) {
    int ends[RANKS_MAX][2];
    pid_t pids[RANKS_MAX];
    for (int i = 0; i < count; i++) {
        assert_int_equal(pipe(ends[i]), 0);
        pids[i] = start_rank(&ranks[i], timeout_s, life, ends[i][1]);
        assert_true(pids[i] > 0);
        close(ends[i][1]);
    }
    for (int i = 0; i < count; i++) {
        ssize_t n = read(ends[i][0], &outcomes[i], sizeof outcomes[i]);
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        close(ends[i][0]);
        assert_int_equal(n, sizeof outcomes[i]);
        assert_int_equal(status, 0);
    }
}

static inline void run_ranks(const Rendezvous *ranks, int count, double timeout_s,
                             Outcome *outcomes) {
    run_lives(ranks, count, timeout_s, live, outcomes);
}

static inline void assert_outcome(const Outcome *outcome, const char *part) {
    assert_int_not_equal(outcome->status, 0);
    if (!strstr(outcome->message, part)) fail_msg("'%s' lacks '%s'", outcome->message, part);
}

// The server runs in a process of its own, because ddprun forks ranks before it has threads.
static inline pid_t start_server(int *port) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t server = fork();
    if (server == 0) {
        alarm(60);
        Error err = {0};
        StoreServer *store = store_serve("127.0.0.1", 0, "secret", &err);
        *port = store ? store_server_port(store) : 0;
        if (write(ends[1], port, sizeof *port) != sizeof *port) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ends[0], port, sizeof *port), sizeof *port);
    close(ends[0]);
    close(ends[1]);
    return server;
}

static inline void end_server(pid_t server) {
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

#endif
