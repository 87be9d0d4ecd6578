/* test_launch_processes.c: programs that start their own ranks, and repeated initialisation in one
 * process, which such programs need (tests/semantics.md).
 */
#include "tests/rigs/meeting_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "ddp/launch/launch_processes.h"

typedef struct Shared { // memory shared by the test and all ranks
    int local_rank[RANKS_MAX], local_world[RANKS_MAX], sum[RANKS_MAX];
    pid_t pid[RANKS_MAX];
    int port, failing, how;
    char message[RANKS_MAX][200];
} Shared;

static Shared *new_shared(void) {
    Shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    return shared;
}

static void must_contain(const char *message, const char *part) {
    if (!strstr(message, part)) fail_msg("\"%s\" does not say \"%s\"", message, part);
}

// ---- success --------------------------------------------------------------------------------

static int add_up(ProcessGroup *group, const Rendezvous *me, void *arguments) {
    Shared *shared = arguments;
    Error err = {0};
    int32_t sum = 1 << me->rank;
    alarm(60);
    if (pg_run(group, pg_all_reduce(&sum, 1, PG_I32, PG_SUM), &err) != 0) return 1;
    shared->sum[me->rank] = sum;
    shared->local_rank[me->rank] = me->local_rank;
    shared->local_world[me->rank] = me->local_world_size;
    shared->pid[me->rank] = getpid();
    return pg_rank(group) == me->rank ? 0 : 1;
}

static void test_one_machine(void **state) {
    (void)state;
    for (int world = 1; world <= 5; world++) {
        Shared *shared = new_shared();
        Error err = {0};
        const int before = open_descriptors();
        if (launch_processes(add_up, world, 1, 0, "auto", shared, &err) != 0)
            fail_msg("%s", err.message);
        assert_int_equal(open_descriptors(), before);
        for (int r = 0; r < world; r++) {
            assert_int_equal(shared->sum[r], (1 << world) - 1);
            assert_int_equal(shared->local_rank[r], r);
            assert_int_equal(shared->local_world[r], world);
            assert_true((shared->pid[r] == getpid()) == (world == 1));
        }
        munmap(shared, sizeof *shared);
    }
    alarm(0); // a world of one runs in this process
}

// Each "machine" is a process that calls launch_processes.
static void test_two_machines(void **state) {
    (void)state;
    Shared *shared = new_shared();
    char url[64];
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", free_port());
    pid_t machines[2];
    for (int m = 0; m < 2; m++) {
        machines[m] = fork();
        if (machines[m] > 0) continue;
        Error err = {0};
        _exit(launch_processes(add_up, 2, 2, m, url, shared, &err) == 0 ? 0 : 1);
    }
    for (int m = 0; m < 2; m++) {
        int status;
        assert_int_equal(waitpid(machines[m], &status, 0), machines[m]);
        assert_int_equal(status, 0);
    }
    for (int r = 0; r < 4; r++) {
        assert_int_equal(shared->sum[r], 15);
        assert_int_equal(shared->local_rank[r], r % 2);
        assert_int_equal(shared->local_world[r], 2);
    }
    munmap(shared, sizeof *shared);
}

// Inherited state: buffered output is written once, signal handlers are restored, and ranks do not
// use the heartbeat page of a surrounding ddprun.
static FILE *both_write;

static int look_around(ProcessGroup *group, const Rendezvous *me, void *arguments) {
    Shared *shared = arguments;
    Error err = {0};
    sigset_t blocked;
    alarm(60);
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    shared->sum[me->rank] = sigismember(&blocked, SIGUSR1) - 2 * sigismember(&blocked, SIGCHLD);
    fprintf(both_write, "rank %d\n", me->rank);
    return pg_run(group, pg_barrier(), &err) != 0;
}

static void test_what_a_rank_takes_over(void **state) {
    (void)state;
    Shared *shared = new_shared();
    char text[100] = "";
    Error err = {0};
    sigset_t blocked, before;
    int file = memfd_create("text", MFD_CLOEXEC);
    assert_int_equal(fcntl(file, F_SETFL, O_APPEND), 0);
    both_write = fdopen(file, "a");
    fputs("once\n", both_write);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    setenv("DDPRUN_HEARTBEAT", "no page", 1);
    if (launch_processes(look_around, 2, 1, 0, "auto", shared, &err) != 0)
        fail_msg("%s", err.message);
    unsetenv("DDPRUN_HEARTBEAT");
    sigprocmask(SIG_SETMASK, &before, &blocked);
    assert_true(sigismember(&blocked, SIGUSR1) && !sigismember(&blocked, SIGCHLD));
    for (int r = 0; r < 2; r++) assert_int_equal(shared->sum[r], 1);
    assert_true(pread(file, text, sizeof text - 1, 0) > 0);
    assert_int_equal(strlen(text), strlen("once\nrank 0\nrank 1\n"));
    must_contain(text, "once\n");
    must_contain(text, "rank 0\n");
    must_contain(text, "rank 1\n");
    fclose(both_write);
    munmap(shared, sizeof *shared);
}

// ---- a rank fails ---------------------------------------------------------------------------

enum { BY_STATUS, BY_SIGNAL, AND_OTHERS_RESIST, AND_OTHERS_NOTE };

static int graces; // requested waits of 5 s, which last grace_s here
static double grace_s;

uint64_t __real_clock_ns_after(double seconds);
uint64_t __wrap_clock_ns_after(double seconds);

uint64_t __wrap_clock_ns_after(double seconds) {
    const bool grace = seconds == 5;
    graces += grace;
    return __real_clock_ns_after(grace ? grace_s : seconds);
}

static Shared *noting; // receives each rank's SIGTERM
static int noting_rank;

static void note_and_end(int number) {
    noting->sum[noting_rank] = number;
    _exit(0);
}

// Returns whether the process is stopped.
static bool is_stopped(pid_t pid) {
    char path[40], line[200] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file && !fgets(line, sizeof line, file)) line[0] = '\0';
    if (file) fclose(file);
    return strstr(line, ") T ");
}

static int one_fails(ProcessGroup *group, const Rendezvous *me, void *arguments) {
    Shared *shared = arguments;
    Error err = {0};
    alarm(60);
    if (shared->how == AND_OTHERS_RESIST) signal(SIGTERM, SIG_IGN);
    noting = shared;
    noting_rank = me->rank;
    if (shared->how == AND_OTHERS_NOTE) signal(SIGTERM, note_and_end);
    shared->pid[me->rank] = getpid();
    if (pg_run(group, pg_barrier(), &err) != 0) return 1;
    if (me->rank == 2 && shared->how == AND_OTHERS_NOTE) raise(SIGSTOP);
    if (me->rank == shared->failing && shared->how == AND_OTHERS_NOTE)
        while (!is_stopped(shared->pid[2])) usleep(1000);
    if (me->rank == shared->failing && shared->how == BY_SIGNAL) raise(SIGKILL);
    if (me->rank == shared->failing) return 7;
    for (;;) pause();
}

static void check_failure(int how, int status, const char *says) {
    Shared *shared = new_shared();
    char who[40];
    Error err = {0};
    shared->how = how;
    shared->failing = 1;
    pid_t own_child = fork(); // the program's own child, which must survive
    if (own_child == 0) _exit(42);
    graces = 0;
    grace_s = how == AND_OTHERS_NOTE ? 50 : 0.3;
    assert_int_equal(launch_processes(one_fails, 3, 1, 0, "auto", shared, &err), -1);
    assert_int_equal(graces, 1);
    assert_int_equal(err.status, status);
    snprintf(who, sizeof who, "rank 1 (pid %d) ", (int)shared->pid[1]);
    must_contain(err.message, who);
    must_contain(err.message, says);
    for (int r = 0; r < 3; r++) assert_int_equal(kill(shared->pid[r], 0), -1); // all have ended
    assert_int_equal(waitpid(own_child, &status, 0), own_child);
    assert_int_equal(WEXITSTATUS(status), 42);
    for (int r = 0; r < 3; r += 2)
        assert_int_equal(shared->sum[r], how == AND_OTHERS_NOTE ? SIGTERM : 0);
    munmap(shared, sizeof *shared);
}

static void test_a_rank_fails(void **state) {
    (void)state;
    check_failure(BY_STATUS, 7, "exited with status 7");
    check_failure(BY_SIGNAL, 128 + SIGKILL, "died of SIGKILL");
    check_failure(AND_OTHERS_RESIST, 7, "exited with status 7");
    check_failure(AND_OTHERS_NOTE, 7, "exited with status 7"); // a stopped rank gets SIGTERM too
}

static int forks_before_failure = -1; // successful forks before one fails; -1: none fails

pid_t __real_fork(void);
pid_t __wrap_fork(void);

pid_t __wrap_fork(void) {
    errno = EAGAIN;
    return forks_before_failure >= 0 && forks_before_failure-- == 0 ? -1 : __real_fork();
}

// If a rank cannot be started, the ranks already started are ended: none waits for it.
static void test_a_rank_is_not_started(void **state) {
    (void)state;
    Error err = {0};
    forks_before_failure = 2;
    assert_int_equal(launch_processes(add_up, 3, 2, 1, "tcp://127.0.0.1:1", NULL, &err), -1);
    forks_before_failure = -1;
    assert_int_equal(err.status, STATUS_FAILED);
    must_contain(err.message, "cannot start rank 5: Resource temporarily unavailable");
    assert_int_equal(waitpid(-1, NULL, 0), -1); // all ranks were reaped
}

// If the rendezvous fails, each rank prints its own error.
static void test_ranks_do_not_meet(void **state) {
    (void)state;
    int talk = memfd_create("stderr", MFD_CLOEXEC), kept = dup(STDERR_FILENO);
    assert_true(talk >= 0 && kept >= 0 && dup2(talk, STDERR_FILENO) >= 0);
    Error err = {0}, alone = {0};
    int status = launch_processes(add_up, 2, 2, 1, "file://no/url", NULL, &err);
    int status_alone = launch_processes(add_up, 1, 1, 0, "file://no/url", NULL, &alone);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    char text[1024] = "";
    assert_true(pread(talk, text, sizeof text - 1, 0) > 0);
    close(talk);
    close(kept);
    assert_int_equal(status, -1);
    assert_int_equal(err.status, STATUS_USAGE);
    must_contain(err.message, " exited with status 2");
    const char *line = strstr(text, "rank 2: error: "); // the other may be ended before it prints
    if (!line) line = strstr(text, "rank 3: error: ");
    assert_non_null(line);
    must_contain(line, "file:// rendezvous: 'no' would be a host");
    assert_int_equal(status_alone, -1);
    assert_int_equal(alone.status, STATUS_USAGE);
    assert_string_equal(alone.message, "rank 0 ended with status 2");
    must_contain(text, "rank 0: error: file:// rendezvous: 'no' would be a host");
}

// The test becomes the parent of the dead launcher's ranks, to see how they end.
static void test_the_parent_is_killed(void **state) {
    (void)state;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 && errno == EINVAL) skip(); // qemu-user 7.2
    Shared *shared = new_shared();
    pid_t launcher = fork();
    if (launcher == 0) {
        Error err = {0};
        shared->failing = -1;
        _exit(launch_processes(one_fails, 3, 1, 0, "auto", shared, &err) == 0 ? 0 : 1);
    }
    volatile pid_t *pids = shared->pid;
    for (int i = 0; i < 3000 && !(pids[0] && pids[1] && pids[2]); i++) usleep(10000);
    kill(launcher, SIGKILL);
    assert_int_equal(waitpid(launcher, NULL, 0), launcher);
    for (int r = 0; r < 3; r++) {
        int status;
        assert_int_equal(waitpid(shared->pid[r], &status, 0), shared->pid[r]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    munmap(shared, sizeof *shared);
}

static void refuse(int nproc, int machines, int machine_rank, const char *url, const char *says) {
    Error err = {0};
    assert_int_equal(launch_processes(add_up, nproc, machines, machine_rank, url, NULL, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    must_contain(err.message, says);
}

static void test_bad_arguments(void **state) {
    (void)state;
    refuse(0, 1, 0, "auto", "cannot launch 0 ranks");
    refuse(2, 0, 0, "auto", "on each of 0 machines");
    refuse(1 << 20, 2, 0, "auto", "cannot launch");
    refuse(2, 2, 2, "tcp://h:1", "there is no machine 2 of 2");
    refuse(2, 2, 0, "auto", "url auto is for one machine");
}

// ---- repeated initialisation ----------------------------------------------------------------

// The same ranks can meet again, repeatedly, at the address of a completed rendezvous.
static int meet_again(ProcessGroup *group, const Rendezvous *me, void *arguments) {
    Shared *shared = arguments;
    Rendezvous there = place(me->rank, me->world_size, shared->port);
    alarm(60);
    for (int i = 0; i < 5; i++) {
        Outcome outcome = live(&there, LONG_S);
        if (outcome.status == 0) continue;
        fprintf(stderr, "rank %d, meeting %d: %s\n", pg_rank(group), i, outcome.message);
        return 1;
    }
    return 0;
}

static void test_meet_again(void **state) {
    (void)state;
    Shared *shared = new_shared();
    Error err = {0};
    shared->port = free_port();
    if (launch_processes(meet_again, 3, 1, 0, "auto", shared, &err) != 0)
        fail_msg("%s", err.message);
    munmap(shared, sizeof *shared);
}

// A launcher's store serves one rendezvous per attempt.
static int meet_twice(ProcessGroup *group, const Rendezvous *me, void *arguments) {
    Shared *shared = arguments;
    Error err = {0};
    StoreServer *server = me->rank == 0 ? store_serve("127.0.0.1", 0, "", &err) : NULL;
    int32_t port = server ? store_server_port(server) : 0;
    alarm(60);
    if (pg_run(group, pg_broadcast(&port, 1, PG_I32, 0), &err) != 0) return 1;
    Rendezvous there = place(me->rank, me->world_size, port);
    there.launcher_store = true;
    ProcessGroup *first = init_process_group("auto", &there, NULL, LONG_S, &err);
    if (!first || init_process_group("auto", &there, NULL, LONG_S, &err)) return 2;
    snprintf(shared->message[me->rank], sizeof shared->message[0], "%.199s", err.message);
    err = (Error){0};
    if (pg_run(first, pg_barrier(), &err) != 0 || pg_run(group, pg_barrier(), &err) != 0) return 3;
    pg_close(first);
    store_server_close(server);
    return 0;
}

static void test_meet_twice(void **state) {
    (void)state;
    Shared *shared = new_shared();
    Error err = {0};
    if (launch_processes(meet_twice, 2, 1, 0, "auto", shared, &err) != 0)
        fail_msg("%s", err.message);
    for (int r = 0; r < 2; r++)
        must_contain(shared->message[r], "trying to initialize the default process group twice!");
    munmap(shared, sizeof *shared);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_machine),
        cmocka_unit_test(test_two_machines),
        cmocka_unit_test(test_what_a_rank_takes_over),
        cmocka_unit_test(test_a_rank_is_not_started),
        cmocka_unit_test(test_ranks_do_not_meet),
        cmocka_unit_test(test_a_rank_fails),
        cmocka_unit_test(test_the_parent_is_killed),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_meet_again),
        cmocka_unit_test(test_meet_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
