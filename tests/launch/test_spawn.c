/* test_spawn.c: how ddprun learns whether a rank runs its program (launch_watch_start of
 * ddp/launch/spawn.c): by a pipe, here of this test.
 */
#include "tests/rigs/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp/launch/launch.h"

static LaunchCause ended; // of the attempt; CAUSE_NONE: it continues

void launch_end_ranks(Launch *launch, LaunchCause cause, int signal_number) {
    assert_int_equal(signal_number, SIGTERM);
    launch->stage = LAUNCH_ENDING;
    ended = cause;
}

void launch_env_set(const Launch *launch, int local_rank) {
    (void)launch, (void)local_rank;
}

void guard_tell(const Guard *guard, pid_t message) {
    (void)guard, (void)message;
}

void output_connect(Output *output, int local_rank, int stdout_fd, int stderr_fd) {
    (void)output, (void)local_rank, (void)stdout_fd, (void)stderr_fd;
}

// What rank 1 has written into its pipe, and how long ago it was forked.
typedef struct Start {
    size_t bytes;
    int error;
    bool closed; // its end of the pipe
    double ago_s;
    const char *says; // NULL: it runs, or may still
} Start;

static void test_starts(void **state) {
    (void)state;
    static const Start starts[] = {
        {0, 0, false, 58, NULL},
        {0, 0, false, 61, "rank 5: /a/tool has not begun to run after 60 s"},
        {0, 0, true, 61, NULL},
        {sizeof(int), ENOENT, true, 1, "rank 5: cannot run /a/tool: No such file or directory"},
        {sizeof(int), ENOEXEC, false, 1,
         "rank 5: cannot run /a/tool: Exec format error (a script needs a first line like "
         "#!/bin/sh)"},
        {1, ENOENT, true, 1, "rank 5: cannot run /a/tool: Input/output error"},
    };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        const Start *s = &starts[i];
        LaunchedRank ranks[2] = {{.start_fd = -1}, {.rank = 5}};
        Launch *launch = calloc(1, sizeof *launch);
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        assert_int_equal(write(ends[1], &s->error, s->bytes), s->bytes);
        if (s->closed) close(ends[1]);
        strcpy(launch->program, "/a/tool");
        launch->ranks = ranks;
        launch->starting = 3;
        ranks[1].start_fd = ends[0];
        ranks[1].heard_ns = clock_ns() - (uint64_t)(s->ago_s * 1e9);
        ended = CAUSE_NONE;
        launch_watch_start(launch, 0); // runs already
        launch_watch_start(launch, 1);
        const bool waits = !s->closed && !s->says;
        assert_int_equal(launch->starting, waits ? 3 : 2);
        assert_int_equal(ranks[1].start_fd, waits ? ends[0] : -1);
        assert_int_equal(fcntl(ends[0], F_GETFD), waits ? FD_CLOEXEC : -1);
        assert_string_equal(launch->start_error.message, s->says ? s->says : "");
        const int status = i == 1 ? STATUS_FAILED : STATUS_USAGE;
        assert_int_equal(launch->start_error.status, s->says ? status : 0);
        assert_int_equal(ended, s->says ? CAUSE_START : CAUSE_NONE);
        if (waits) close(ends[0]);
        if (!s->closed) close(ends[1]);
        free(launch);
    }
}

// Of several ranks that cannot be started the first is said, and the attempt is ended once.
static void test_first_error(void **state) {
    (void)state;
    LaunchedRank ranks[2] = {{.rank = 0}, {.rank = 1}};
    Launch *launch = calloc(1, sizeof *launch);
    const int error = EACCES;
    launch->ranks = ranks;
    launch->starting = 2;
    ended = CAUSE_NONE;
    for (int r = 0; r < 2; r++) {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        assert_int_equal(write(ends[1], &error, sizeof error), sizeof error);
        close(ends[1]);
        ranks[r].start_fd = ends[0];
        launch_watch_start(launch, r);
        assert_int_equal(ended, r == 0 ? CAUSE_START : CAUSE_NONE);
        ended = CAUSE_NONE;
        check_message(&launch->start_error, "rank 0: cannot run ");
    }
    assert_int_equal(launch->starting, 0);
    free(launch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starts),
        cmocka_unit_test(test_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
