/* test_launcher.c: a job's sequence (ddp/launch/launcher.c): the resources it opens, their order,
 * and their closing after each failure; the failures that lead to another attempt; the exit status.
 * All called functions are simulated; each call is recorded as one word.
 */
#include "tests/rigs/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/format.h"
#include "ddp/launch/elastic.h"

enum { RANKS = 3, SERVED_AT = 4711 };

// The outcome of an attempt.
typedef struct Attempt {
    LaunchCause cause;
    RankFate fate; // of rank 1, the root of the failure
    int code;
    int alive;  // ranks that survived SIGKILL
    int caught; // signal received by ddprun
    bool no_restart;
} Attempt;

static struct {
    const char *failing; // name of the call that fails
    int met;             // result of the nodes' rendezvous
    bool elastic, ends_apart;
    int flushed; // result of output_flush
    const char *shared_token;
    Attempt attempts[4];
    int attempt;
    LaunchCause cause; // of the job's end
    char notes[2000];
} play;

static LaunchOptions options;

static void note(const char *format, ...) {
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    assert_true(format_append(play.notes, sizeof play.notes, "%s%s", *play.notes ? " " : "", text));
}

// Records the call; returns whether it fails, with errno ENOSPC.
static bool fails(const char *call) {
    note("%s", call);
    errno = ENOSPC;
    return play.failing && strcmp(play.failing, call) == 0;
}

static int answer(const char *call, Error *err) {
    return fails(call) ? error_set(err, STATUS_USAGE, "no %s", call) : 0;
}

// ---- Opening -----

#define PLAYED(type, name, ...) type __wrap_##name(__VA_ARGS__)

PLAYED(int, getrlimit, __rlimit_resource_t resource, struct rlimit *limit);
PLAYED(int, store_make_token, char token[STORE_TOKEN_MAX + 1], Error *err);
PLAYED(int, init_read_token, char token[STORE_TOKEN_MAX + 1], Error *err);
PLAYED(int, heartbeat_board_open, HeartbeatBoard *board, int ranks, Error *err);
PLAYED(void, heartbeat_board_clear, HeartbeatBoard *board);
PLAYED(void, heartbeat_board_close, HeartbeatBoard *board);
PLAYED(StoreServer *, store_serve, const char *host, int port, const char *token, Error *err);
PLAYED(int, store_server_port, const StoreServer *server);
PLAYED(void, store_server_close, StoreServer *server);
PLAYED(void, store_close, Store *store);
PLAYED(int, net_check_host, const char *host, Error *err);
PLAYED(int, signalfd, int fd, const sigset_t *mask, int flags);
int __real_signalfd(int fd, const sigset_t *mask, int flags);

static char output_there, server_there, store_there, page; // stand-ins; only addresses count
static Elastic elastic;

int __wrap_getrlimit(__rlimit_resource_t resource, struct rlimit *limit) {
    assert_int_equal(resource, RLIMIT_NOFILE);
    *limit = (struct rlimit){123, 456};
    return fails("limit") ? -1 : 0;
}

int launcher_find_program(const char *name, char path[PATH_MAX], Error *err) {
    assert_string_equal(name, "tool");
    strcpy(path, "/bin/tool");
    return answer("program", err);
}

int __wrap_store_make_token(char token[STORE_TOKEN_MAX + 1], Error *err) {
    strcpy(token, "made");
    return answer("token", err);
}

int __wrap_init_read_token(char token[STORE_TOKEN_MAX + 1], Error *err) {
    strcpy(token, play.shared_token);
    return answer("shared", err);
}

Output *output_open(const LaunchOptions *given, Error *err) {
    assert_ptr_equal(given, &options);
    return answer("output", err) == 0 ? (Output *)&output_there : NULL;
}

int __wrap_signalfd(int fd, const sigset_t *mask, int flags) {
    return fails("signals") ? -1 : __real_signalfd(fd, mask, flags);
}

int guard_open(Guard *guard, Error *err) {
    guard->pid = 5;
    return answer("guard", err);
}

int __wrap_heartbeat_board_open(HeartbeatBoard *board, int ranks, Error *err) {
    assert_int_equal(ranks, RANKS);
    board->page = &page;
    return answer("board", err);
}

StoreServer *__wrap_store_serve(const char *host, int port, const char *token, Error *err) {
    note("serve(%s:%d,%s)", host, port, token);
    return answer("server", err) == 0 ? (StoreServer *)&server_there : NULL;
}

int __wrap_store_server_port(const StoreServer *server) {
    assert_ptr_equal(server, &server_there);
    return SERVED_AT;
}

int __wrap_net_check_host(const char *host, Error *err) {
    note("host(%s)", host);
    return answer("check", err);
}

// ---- Closing ------

void output_close(Output *output) {
    note(output ? "-output" : "-");
}

void __wrap_store_close(Store *store) {
    note(store ? "-store" : "-");
}

void __wrap_store_server_close(StoreServer *server) {
    note(server ? "-server" : "-");
}

void __wrap_heartbeat_board_close(HeartbeatBoard *board) {
    note(board->page ? "-board" : "-");
}

void guard_close(Guard *guard) {
    note(guard->pid ? "-guard" : "-");
}

void elastic_close(Launch *launch) {
    note(launch->elastic ? "-elastic" : "-");
    if (launch->signal_fd > 0) close(launch->signal_fd); // if it is 0, the process's end closes it
}

// ---- An attempt

// Signals are blocked and read from the signalfd, independent of the inherited dispositions.
static void check_signals(const Launch *launch, bool nohup) {
    static const int numbers[] = {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGPIPE};
    struct signalfd_siginfo info;
    struct sigaction action;
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int i = 0; i < 7; i++) {
        const bool wanted = i < 4 || (i == 4 && !nohup);
        assert_int_equal(sigismember(&blocked, numbers[i]), wanted);
        assert_int_equal(sigismember(&launch->old_mask, numbers[i]), 0);
        if (!wanted) continue;
        raise(numbers[i]);
        assert_int_equal(read(launch->signal_fd, &info, sizeof info), sizeof info);
        assert_int_equal(info.ssi_signo, numbers[i]);
    }
    assert_int_equal(read(launch->signal_fd, &info, sizeof info), -1); // is non-blocking
    assert_int_equal(fcntl(launch->signal_fd, F_GETFD), FD_CLOEXEC);
    sigaction(SIGCHLD, NULL, &action);
    assert_true(action.sa_handler == SIG_DFL);
    sigaction(SIGPIPE, NULL, &action);
    assert_true(action.sa_handler == SIG_IGN);
}

int launch_rendezvous_nodes(Launch *launch, Error *err) {
    struct sigaction hangup;
    sigaction(SIGHUP, NULL, &hangup);
    check_signals(launch, hangup.sa_handler == SIG_IGN);
    note("meet(%s,%d)", launch->token, launch->port);
    assert_true(*launch->host && launch->old_descriptors.rlim_max == 456);
    assert_string_equal(launch->program, "/bin/tool");
    assert_int_equal(launch->root, -1);
    launch->node = options.node;
    launch->others = calloc(1, sizeof *launch->others);
    launch->store = (Store *)&store_there;
    launch->elastic = play.elastic ? &elastic : NULL;
    launch->caught = play.met > 0 ? play.met : 0;
    return play.met < 0 ? answer("met", err) : play.met;
}

void launch_say_threads(Launch *launch) {
    assert_int_equal(launch->started, 0);
    note("threads");
}

int output_begin(Output *output, int attempt, int first_rank, Error *err) {
    assert_ptr_equal(output, &output_there);
    note("begin(%d,%d)", attempt, first_rank);
    return answer("begun", err);
}

void __wrap_heartbeat_board_clear(HeartbeatBoard *board) {
    assert_ptr_equal(board->page, &page);
    note("clear");
}

void launch_supervise(Launch *launch) {
    const Attempt *a = &play.attempts[play.attempt++];
    note("run");
    assert_int_equal(launch->stage, LAUNCH_RUNNING);
    assert_int_equal(launch->cause, CAUSE_NONE);
    assert_int_equal(launch->root, -1);
    assert_int_equal(launch->alive + launch->started + launch->starting, 0);
    assert_true(launch->first_good_end_ns == 0 && launch->checked_ns == 0);
    for (int r = 0; r < RANKS; r++) {
        const LaunchedRank *rank = &launch->ranks[r];
        assert_int_equal(rank->rank, options.node * RANKS + r);
        assert_int_equal(rank->local_rank, r);
        assert_int_equal(rank->start_fd, -1);
        assert_true(rank->fate == RANK_ABSENT && rank->pid == 0 && rank->code == 0);
        assert_false(rank->failed || rank->core_dumped || rank->stopped || rank->sent);
        assert_true(rank->ended_ns == 0 && rank->beat_ns == 0 && rank->heard_ns == 0);
        memset(&launch->ranks[r], 1, sizeof launch->ranks[r]); // stale values of an attempt
    }
    launch->stage = LAUNCH_KILLING;
    launch->alive = a->alive;
    launch->started = launch->starting = RANKS;
    launch->first_good_end_ns = launch->checked_ns = 9;
    launch->root = 1;
    launch->ranks[1].fate = a->fate;
    launch->ranks[1].code = a->code;
    launch->cause = a->cause;
    launch->caught = a->caught;
    launch->no_restart = a->no_restart;
    if (a->cause == CAUSE_START) error_set(&launch->start_error, STATUS_USAGE, "rank 1 cannot");
}

void output_end(Output *output) {
    assert_ptr_equal(output, &output_there);
    note("end");
}

void launch_publish_end(Launch *launch, LaunchEnd end, const char *why) {
    (void)launch;
    note("publish(%d,%s)", end, why);
}

void launch_await_nodes(Launch *launch) {
    note("await");
    if (play.failing && strcmp(play.failing, "await") == 0) launch->cause = CAUSE_NODES;
}

void report_others(Launch *launch) {
    (void)launch;
    note("others");
}

bool launch_end_together(Launch *launch) {
    (void)launch;
    note("together");
    return !play.ends_apart;
}

bool elastic_next(Launch *launch, Error *err) {
    note("next");
    if (play.failing && strcmp(play.failing, "next") == 0)
        error_set(err, STATUS_FAILED, "the job is over");
    return ++launch->attempt < 2 && err->status == 0;
}

void output_say(Output *output, const char *format, ...) {
    char text[200];
    va_list arguments;
    assert_ptr_equal(output, &output_there);
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    note("'%s'", text);
}

void launch_drain_nodes(Launch *launch) {
    play.cause = launch->cause;
    note("drain");
}

int output_flush(Output *output, double seconds) {
    assert_ptr_equal(output, &output_there);
    note("flush(%g)", seconds);
    return play.flushed;
}

// ---- Jobs

static void begin(int restarts) {
    static char *command[] = {"tool", NULL};
    memset(&play, 0, sizeof play);
    play.shared_token = "shared";
    options = (LaunchOptions){.local_ranks = RANKS,
                              .nodes = 1,
                              .min_nodes = 1,
                              .master_addr = "here",
                              .master_port = 7,
                              .max_restarts = restarts,
                              .command = command};
}

// Runs a job. SIGCHLD is inherited as ignored, which a shell may do; with nohup SIGHUP too.
static void job(bool nohup, int status, const char *message, const char *notes) {
    Error err = {0};
    sigset_t none, before;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, &before);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGHUP, nohup ? SIG_IGN : SIG_DFL);
    const int ended = launcher_run(&options, &err);
    signal(SIGHUP, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    assert_string_equal(play.notes, notes);
    assert_string_equal(err.message, message);
    assert_int_equal(ended, status);
    assert_int_equal(err.status, *message ? status : 0);
}

#define OPEN \
    "limit program token output signals guard board serve(here:7,made) server meet(made,4711)"
#define RUN   " clear begin(0,0) begun run end"
#define CLOSE " drain flush(10) -output -store -server -board -guard "

static void a_job_of_one_attempt(void **state) {
    (void)state;
    for (int nohup = 0; nohup < 2; nohup++) {
        begin(2);
        job(nohup, 0, "", OPEN " threads" RUN " await" CLOSE "-");
        assert_int_equal(play.cause, CAUSE_NONE);
    }
}

// A failure while opening ends the job, and all opened resources are closed.
static void what_cannot_be_opened(void **state) {
    (void)state;
    static const struct {
        const char *failing;
        int status;
        const char *message, *notes;
    } cases[] = {
        {"limit", 1, "getrlimit: No space left on device", "limit drain - - - - - -"},
        {"program", 2, "no program", "limit program drain - - - - - -"},
        {"token", 2, "no token", "limit program token drain - - - - - -"},
        {"output", 2, "no output", "limit program token output drain - - - - - -"},
        {"signals", 1, "cannot receive signals: No space left on device",
         "limit program token output signals drain flush(10) -output - - - - -"},
        {"guard", 2, "no guard",
         "limit program token output signals guard drain flush(10) -output - - - -guard -"},
        {"board", 2, "no board",
         "limit program token output signals guard board drain flush(10) -output - - -board -guard "
         "-"},
        {"server", 2, "no server",
         "limit program token output signals guard board serve(here:7,made) server drain flush(10) "
         "-output - - -board -guard -"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(2);
        play.failing = cases[i].failing;
        job(false, cases[i].status, cases[i].message, cases[i].notes);
    }
}

// Node 1 has no server, resolves node 0's name, and requires the shared secret.
static void one_of_several_nodes(void **state) {
    (void)state;
    static const char WHY[] =
        "with several nodes set DDPRUN_TOKEN to the same secret on each, for example to the output "
        "of: openssl rand -hex 16";
    begin(0);
    options.nodes = 2;
    options.node = 1;
    play.shared_token = "s";
    job(false, 0, "",
        "limit program shared output signals guard board host(here) check meet(s,7) threads "
        "clear begin(0,3) begun run end await drain flush(10) -output -store - -board -guard -");
    begin(0);
    options.nodes = 2;
    options.node = 1;
    play.failing = "check";
    job(false, 2, "no check",
        "limit program shared output signals guard board host(here) check drain flush(10) -output "
        "- - -board -guard -");
    begin(0);
    options.nodes = 2;
    play.failing = "shared";
    job(false, 2, "no shared", "limit program shared drain - - - - - -");
    begin(0);
    options.nodes = 2;
    play.shared_token = "";
    job(false, 2, WHY, "limit program shared drain - - - - - -");
}

static void nodes_do_not_meet(void **state) {
    (void)state;
    begin(0);
    play.met = SIGHUP;
    job(false, 128 + SIGHUP, "", OPEN CLOSE "-");
    begin(0);
    play.met = -1;
    play.failing = "met";
    job(false, 2, "no met", OPEN " met" CLOSE "-");
}

static void the_exit_status(void **state) {
    (void)state;
    static const struct {
        Attempt attempt;
        int status;
    } cases[] = {
        {{CAUSE_DEATH, RANK_EXITED, 77, 0, 0, false}, 77},
        {{CAUSE_DEATH, RANK_KILLED, SIGKILL, 0, 0, false}, 128 + SIGKILL},
        {{CAUSE_STOPPED, RANK_KILLED, SIGKILL, 0, 0, false}, 1},
        {{CAUSE_LATE, RANK_EXITED, 5, 0, 0, false}, 1},
        {{CAUSE_SIGNAL, RANK_EXITED, 5, 0, SIGINT, false}, 128 + SIGINT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(0);
        play.attempts[0] = cases[i].attempt;
        job(false, cases[i].status, "", OPEN " threads" RUN " others" CLOSE "-");
    }
    begin(0); // another node has failed
    play.failing = "await";
    job(false, 1, "", OPEN " threads" RUN " await others" CLOSE "-");
    assert_int_equal(play.cause, CAUSE_NODES);
}

// Each condition that prevents another attempt, beside a similar failure without it.
static void when_it_restarts(void **state) {
    (void)state;
    static const struct {
        Attempt attempt;
        bool apart, restarts;
        int status;
    } cases[] = {
        {{CAUSE_DEATH, RANK_EXITED, 9, 0, 0, false}, false, true, 0},
        {{CAUSE_NODES, RANK_EXITED, 9, 0, 0, false}, false, true, 0},
        {{CAUSE_DEATH, RANK_EXITED, 9, 1, 0, false}, false, false, 9}, // a rank survived
        {{CAUSE_DEATH, RANK_EXITED, 9, 0, SIGTERM, false}, false, false, 9},
        {{CAUSE_SIGNAL, RANK_EXITED, 9, 0, 0, false}, false, false, 128},
        {{CAUSE_DEATH, RANK_EXITED, 9, 0, 0, true}, false, false, 9}, // another node forbids it
        {{CAUSE_DEATH, RANK_EXITED, 9, 0, 0, false}, true, false, 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(1);
        play.attempts[0] = cases[i].attempt;
        play.ends_apart = cases[i].apart;
        job(false, cases[i].status, "",
            cases[i].restarts ? OPEN " threads" RUN " others together 'restarting all ranks "
                                     "(restart 1 of 1)' clear begin(1,0) begun run end await" CLOSE
                                     "-"
            : cases[i].apart ? OPEN " threads" RUN " others together" CLOSE "-"
                             : OPEN " threads" RUN " others" CLOSE "-");
    }
    begin(2); // the maximum number of restarts
    for (int i = 0; i < 4; i++)
        play.attempts[i] = (Attempt){CAUSE_DEATH, RANK_EXITED, 4 + i, 0, 0, false};
    job(false, 6, "",
        OPEN " threads" RUN " others together 'restarting all ranks (restart 1 of 2)' clear "
             "begin(1,0) begun run end others together 'restarting all ranks (restart 2 of 2)' "
             "clear begin(2,0) begun run end others" CLOSE "-");
}

// With elastic nodes elastic_next decides; even a successful attempt may be followed by another
// one.
static void elastic_nodes_decide(void **state) {
    (void)state;
    begin(0);
    play.elastic = true;
    job(false, 0, "",
        OPEN " threads" RUN " await next clear begin(1,0) begun run end await next" CLOSE
             "-elastic");
    begin(0);
    play.elastic = true;
    play.failing = "next";
    job(false, 1, "the job is over", OPEN " threads" RUN " await next" CLOSE "-elastic");
}

// Ranks that cannot be started, or whose log files cannot be opened, end the job on all nodes.
static void an_attempt_that_cannot_begin(void **state) {
    (void)state;
    begin(3);
    play.attempts[0].cause = CAUSE_START;
    job(false, 2, "rank 1 cannot", OPEN " threads" RUN " publish(3,rank 1 cannot)" CLOSE "-");
    begin(3);
    play.failing = "begun";
    job(false, 2, "no begun",
        OPEN " threads clear begin(0,0) begun end publish(3,no begun)" CLOSE "-");
}

// Lost lines of output make the job fail, unless it has failed already.
static void lost_lines(void **state) {
    (void)state;
    begin(0);
    play.flushed = ENOSPC;
    job(false, 1, "lines on standard output were lost: No space left on device",
        OPEN " threads" RUN " await" CLOSE "-");
    begin(0);
    play.flushed = ENOSPC;
    play.attempts[0] = (Attempt){CAUSE_DEATH, RANK_EXITED, 9, 0, 0, false};
    job(false, 9, "", OPEN " threads" RUN " others" CLOSE "-");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_of_one_attempt), cmocka_unit_test(what_cannot_be_opened),
        cmocka_unit_test(one_of_several_nodes), cmocka_unit_test(nodes_do_not_meet),
        cmocka_unit_test(the_exit_status),      cmocka_unit_test(when_it_restarts),
        cmocka_unit_test(elastic_nodes_decide), cmocka_unit_test(an_attempt_that_cannot_begin),
        cmocka_unit_test(lost_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
