/* test_monitor.c: how ddprun detects ranks that are stopped, silent or late (heartbeat_monitor.c),
 * and its messages about ranks that have ended (failure_report.c). Ranks are records with times in
 * the past; the tests never wait.
 */
#include "tests/rigs/screen.h"

#include <fcntl.h>
#include <signal.h>

#include "common/base/clock.h"
#include "ddp/launch/launch.h"

enum { RANKS = 3 };

static LaunchOptions options;
static Launch launch;

// Simulated functions that the monitor and the report call; the output is real.
static int failed_root, nodes_checked;
static LaunchEnd published;
static char published_text[2000];

void launch_fail(Launch *of, LaunchCause cause, int root) {
    of->cause = cause;
    failed_root = root;
}

void launch_check_nodes(Launch *of) {
    (void)of;
    nodes_checked++;
}

void launch_publish_end(Launch *of, LaunchEnd end, const char *why) {
    (void)of;
    published = end;
    snprintf(published_text, sizeof published_text, "%s", why);
}

static uint64_t ago(double seconds) {
    return clock_ns() - (uint64_t)(seconds * 1e9);
}

static int begin(void **state) {
    (void)state;
    char text[20];
    Error err = {0};
    options = (LaunchOptions){
        .local_ranks = RANKS, .heartbeat_s = 10, .start_timeout_s = 20, .exit_timeout_s = 40};
    launch = (Launch){.options = &options, .root = -1, .alive = RANKS, .started = RANKS};
    launch.ranks = memory_zalloc((RANKS + 1) * sizeof *launch.ranks);
    launch.ranks[RANKS] =
        (LaunchedRank){.fate = RANK_ALIVE, .stopped = true, .stopped_ns = 1}; // beyond the ranks
    strcpy(launch.host, "mars");
    for (int r = 0; r < RANKS; r++)
        launch.ranks[r] = (LaunchedRank){
            .rank = 6 + r, .local_rank = r, .pid = 4711 + r, .fate = RANK_ALIVE, .start_fd = -1};
    if (heartbeat_board_open(&launch.board, RANKS, &err) != 0) return -1;
    snprintf(text, sizeof text, "%d", launch.board.fd);
    setenv("DDPRUN_HEARTBEAT", text, 1);
    setenv("TZ", "UTC", 1);
    failed_root = -1;
    nodes_checked = 0;
    published = END_NONE;
    return 0;
}

static int end(void **state) {
    (void)state;
    heartbeat_board_close(&launch.board);
    unsetenv("DDPRUN_HEARTBEAT");
    assert_int_equal(launch.ranks[RANKS].stopped_ns, 1);
    free(launch.ranks);
    return 0;
}

// Writes a heartbeat of rank r. phase NULL: by a collective only.
static void beat(int r, const char *phase, uint64_t sequence) {
    Heartbeat *line = NULL;
    Error err = {0};
    CHECK_OK(heartbeat_open(r, &line, &err) == 0, err);
    if (phase) heartbeat_enter(line, phase, 17);
    if (sequence) heartbeat_collective(line, sequence, "all_reduce");
    heartbeat_close(line);
}

// ---- Silence ----------------------------------------------------------------------------------

typedef struct Watched {
    const char *phase; // NULL: no heartbeat yet
    double silent_s;   // seconds since the last heartbeat
    uint64_t sequence; // number of the last collective
    double stopped_s;  // seconds since the rank was stopped; 0: not stopped
    bool gone;
} Watched;

typedef struct SilenceCase {
    Watched ranks[RANKS];
    int culprit; // the rank that is named; -1: none
    LaunchCause cause;
    double heartbeat_s; // the timeout; 0: 10 s
} SilenceCase;

static void set_ranks(const Watched *ranks) {
    for (int r = 0; r < RANKS; r++) {
        LaunchedRank *rank = &launch.ranks[r];
        if (ranks[r].phase) beat(r, *ranks[r].phase ? ranks[r].phase : NULL, ranks[r].sequence);
        rank->fate = ranks[r].gone ? RANK_EXITED : RANK_ALIVE;
        rank->beat_ns = heartbeat_board_read(&launch.board, r).beat_ns;
        rank->heard_ns = ago(ranks[r].silent_s);
        rank->stopped = ranks[r].stopped_s > 0;
        rank->stopped_ns = ago(ranks[r].stopped_s);
    }
}

static const SilenceCase silence_cases[] = {
    {{{"train", 8, 5, 0, false}, {"train", 8, 5, 0, false}, {"train", 8, 5, 0, false}},
     -1,
     CAUSE_NONE,
     0},
    // The rank with the lowest collective is named; among equals the one with the oldest heartbeat.
    {{{"train", 1, 5, 0, false}, {"train", 11, 4, 0, false}, {"train", 1, 5, 0, false}},
     1,
     CAUSE_SILENT,
     0},
    {{{"train", 1, 4, 0, false}, {"train", 11, 5, 0, false}, {"train", 1, 5, 0, false}},
     0,
     CAUSE_SILENT,
     0},
    {{{"train", 11, 5, 0, false}, {"train", 1, 5, 0, false}, {"train", 1, 4, 0, false}},
     2,
     CAUSE_SILENT,
     0},
    {{{"train", 1, 5, 0, false}, {"train", 1, 5, 0, false}, {"train", 11, 5, 0, false}},
     0,
     CAUSE_SILENT,
     0},
    {{{"train", 1, 3, .gone = true}, {"train", 1, 5, 0, false}, {"train", 11, 4, 0, false}},
     2,
     CAUSE_SILENT,
     0},
    {{{"train", 99, 3, .gone = true}, {"train", 1, 5, 0, false}, {"train", 1, 5, 0, false}},
     -1,
     CAUSE_NONE,
     0},
    // The start has its own timeout, until phase "init" ends.
    {{{"init", 18, 1, 0, false}, {"init", 18, 1, 0, false}, {"", 18, 1, 0, false}},
     -1,
     CAUSE_NONE,
     0},
    {{{"train", 1, 5, 0, false}, {"init", 21, 1, 0, false}, {"train", 1, 5, 0, false}},
     1,
     CAUSE_SILENT,
     0},
    {{{"t", 1, 5, 0, false}, {"t", 11, 4, 0, false}, {"init", 11, 5, 0, false}},
     1,
     CAUSE_SILENT,
     0},
    {{{"train", 1, 5, 0, false}, {"train", 1, 5, 0, false}, {"", 21, 1, 0, false}},
     2,
     CAUSE_SILENT,
     0},
    // A rank without any heartbeat is only named during the start.
    {{{NULL, 99, 0, 0, false}, {NULL, 99, 0, 0, false}, {"train", 8, 5, 0, false}},
     -1,
     CAUSE_NONE,
     0},
    {{{"init", 21, 1, 0, false}, {NULL, 99, 0, 0, false}, {"init", 21, 1, 0, false}},
     1,
     CAUSE_SILENT,
     0},
    {{{"init", 21, 1, 0, false}, {"init", 21, 1, 0, false}, {NULL, 99, 0, 0, false}},
     2,
     CAUSE_SILENT,
     0},
    {{{NULL, 99, 0, 0, false}, {"init", 21, 1, 0, false}, {NULL, 99, 0, 0, false}},
     0,
     CAUSE_SILENT,
     0},
    {{{"train", 11, 5, 0, false}, {NULL, 99, 0, 0, false}, {"train", 1, 5, 0, false}},
     0,
     CAUSE_SILENT,
     0},
    // A stopped rank is named after the heartbeat timeout or 30 s, whichever is shorter.
    {{{"train", 1, 5, 0, false}, {"train", 99, 5, 8, false}, {"train", 1, 5, 0, false}},
     -1,
     CAUSE_NONE,
     0},
    {{{"train", 1, 4, 0, false}, {"train", 1, 5, 11, false}, {"train", 1, 4, 0, false}},
     1,
     CAUSE_STOPPED,
     0},
    {{{"train", 1, 4, 0, false}, {"train", 1, 5, 28, false}, {"train", 1, 4, 0, false}},
     -1,
     CAUSE_NONE,
     100},
    {{{"train", 1, 4, 0, false}, {"train", 1, 4, 0, false}, {"train", 1, 5, 31, false}},
     2,
     CAUSE_STOPPED,
     100},
    {{{NULL, 99, 0, 11, false}, {"train", 1, 5, 0, false}, {"train", 1, 5, 0, false}},
     0,
     CAUSE_STOPPED,
     0},
    {{{"train", 11, 4, 0, false}, {"train", 1, 4, 0, false}, {"train", 1, 5, 1, false}},
     2,
     CAUSE_STOPPED,
     0},
    {{{"train", 1, 4, 1, false}, {"train", 11, 4, 0, false}, {NULL, 1, 0, 0, false}},
     0,
     CAUSE_STOPPED,
     0},
    {{{"train", 1, 4, 0, false}, {"train", 1, 5, 99, true}, {"train", 1, 4, 0, false}},
     -1,
     CAUSE_NONE,
     0},
    {{{"train", 99, 5, 0, false}, {"init", 99, 1, 0, false}, {"train", 1, 5, 99, false}},
     -1,
     CAUSE_NONE,
     -1},
    {{{"train", 3, 5, 0, false}, {"train", 3, 4, 0, false}, {"train", 3, 5, 0, false}},
     1,
     CAUSE_SILENT,
     0.5},
};

static void test_silence(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof silence_cases / sizeof *silence_cases; i++) {
        assert_int_equal(begin(NULL), 0);
        if (silence_cases[i].heartbeat_s) options.heartbeat_s = silence_cases[i].heartbeat_s;
        if (silence_cases[i].heartbeat_s < 0) options.heartbeat_s = 0; // timeouts off
        set_ranks(silence_cases[i].ranks);
        launch_check_health(&launch);
        if (failed_root != silence_cases[i].culprit || launch.cause != silence_cases[i].cause)
            fail_msg("case %zu: culprit %d, cause %d", i, failed_root, (int)launch.cause);
        assert_int_equal(nodes_checked, failed_root < 0);
        end(NULL);
    }
}

// Timers are reset by a new heartbeat, and after the launcher itself was suspended.
static void test_clocks_start_anew(void **state) {
    (void)state;
    static const Watched silent[RANKS] = {
        {"train", 99, 5, 0, false}, {"train", 99, 5, .stopped_s = 99}, {"train", 99, 5, 0, false}};
    static const double checked[] = {0, 3, 6};
    for (int i = 0; i < 3; i++) {
        set_ranks(silent);
        failed_root = -1;
        launch.checked_ns = checked[i] > 0 ? ago(checked[i]) : 0;
        const uint64_t now = clock_ns();
        launch_check_health(&launch);
        assert_int_equal(failed_root, i < 2 ? 1 : -1);
        assert_true(launch.checked_ns >= now);
    }
    failed_root = -1;
    set_ranks((const Watched[RANKS]){
        {"train", 99, 5, 0, false}, {"train", 99, 5, 0, false}, {"train", 99, 5, 0, false}});
    for (int r = 0; r < RANKS; r++) launch.ranks[r].beat_ns--; // the page has a newer beat
    launch_check_health(&launch);
    assert_int_equal(failed_root, -1);
    launch.ranks[1].heard_ns = ago(11);
    launch.ranks[2].heard_ns = ago(11);
    launch_check_health(&launch); // no newer beat
    assert_int_equal(failed_root, 0);
    launch.alive = 0; // no rank to watch
    failed_root = -1;
    nodes_checked = 0;
    launch_check_health(&launch);
    assert_int_equal(failed_root, -1);
    assert_int_equal(nodes_checked, 0);
}

static void test_lateness(void **state) {
    (void)state;
    static const double ended[] = {0, 38, 41};
    for (int i = 0; i < 3; i++) {
        set_ranks((const Watched[RANKS]){{"train", 1, 5, .gone = true},
                                         {"train", 1, 5, .gone = i == 0},
                                         {"train", 1, 5, 0, false}});
        launch.first_good_end_ns = i > 0 ? ago(ended[i]) : 0;
        launch_check_health(&launch);
        assert_int_equal(failed_root, i < 2 ? -1 : 1);
        assert_int_equal(launch.cause, i < 2 ? CAUSE_NONE : CAUSE_LATE);
        assert_int_equal(nodes_checked, i < 2 ? i + 1 : 2);
    }
    launch.ranks[0].fate = RANK_ALIVE;
    launch_check_health(&launch);
    assert_int_equal(failed_root, 0);
}

// ---- Messages ---------------------------------------------------------------------------------

static void open_output(const char *words[RANKS], const char *log_dir) {
    Error err = {0};
    options.log_dir = log_dir;
    screen_begin(false);
    launch.output = output_open(&options, &err);
    CHECK_OK(launch.output, err);
    options.log_dir = NULL;
    for (int r = 0; r < RANKS; r++) { // each rank's last line on stderr
        int out[2], ends[2];
        assert_int_equal(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        const size_t bytes = strlen(words[r]);
        assert_int_equal(__real_write(ends[1], words[r], bytes), bytes);
        output_connect(launch.output, r, out[0], ends[0]);
        close(out[1]);
        close(ends[1]);
    }
    output_pump(launch.output);
    screen_clear();
}

// Returns ddprun's output since the last call, without the prefix.
static const char *said(void) {
    (void)output_flush(launch.output, 0);
    return screen.text[2];
}

static void close_output(void) {
    output_end(launch.output);
    output_close(launch.output);
    screen.begun = false;
}

// 14:03:22.123 UTC
static const struct timespec AT = {14 * 3600 + 3 * 60 + 22, 123999999};

static void check_root(LaunchCause cause, const char *wanted) {
    char text[600];
    launch.cause = cause;
    screen_clear();
    report_root(&launch);
    snprintf(text, sizeof text, "ddprun: %s\n", wanted);
    assert_string_equal(said(), text);
    assert_int_equal(published, END_FAILED);
    assert_string_equal(published_text, wanted);
}

#define ROOT "rank 7 (pid 4712, local rank 1, host mars)"

static void test_root(void **state) {
    (void)state;
    LaunchedRank *root = &launch.ranks[1];
    open_output((const char *[RANKS]){"", "first\nlast\n", ""}, NULL);
    launch.root = 1;
    root->ended_at = root->stopped_at = AT;
    root->fate = RANK_KILLED;
    root->code = SIGKILL;
    check_root(CAUSE_DEATH, ROOT " died of SIGKILL at 14:03:22.123; last stderr: last");
    root->core_dumped = true;
    root->code = 99;
    beat(1, NULL, 3);
    check_root(CAUSE_DEATH, ROOT " died of signal 99 (core dumped) at 14:03:22.123 in collective "
                                 "3 all_reduce; last stderr: last");
    root->fate = RANK_EXITED;
    root->code = 1;
    beat(1, "train", 0);
    check_root(CAUSE_DEATH, ROOT " exited with status 1 at 14:03:22.123 in phase train, step 17, "
                                 "collective 3 all_reduce; last stderr: last");
    beat(1, "t", 0); // a one-letter phase
    check_root(CAUSE_DEATH, ROOT " exited with status 1 at 14:03:22.123 in phase t, step 17, "
                                 "collective 3 all_reduce; last stderr: last");
    beat(1, "train", 0);
    root->stopped_at.tv_nsec = 9000000;
    check_root(CAUSE_STOPPED, ROOT " was stopped by a signal (SIGSTOP?) at 14:03:22.009 in phase "
                                   "train, step 17, collective 3 all_reduce; last stderr: last");
    heartbeat_board_clear(&launch.board);
    beat(1, "eval", 0);
    check_root(CAUSE_LATE, ROOT " is still running 40 s after the first rank ended in phase eval, "
                                "step 17; last stderr: last");
    root->heard_ns = ago(2.5);
    launch.cause = CAUSE_SILENT;
    screen_clear();
    report_root(&launch);
    double seconds = 0;
    assert_int_equal(sscanf(said(), "ddprun: " ROOT " has been silent for %lf s in ", &seconds), 1);
    assert_true(seconds >= 2.5 && seconds < 100);
    close_output();
}

// The root's last line may still be in its pipe; rank 0 can be the root.
static void test_root_0(void **state) {
    (void)state;
    int out[2], ends[2];
    open_output((const char *[RANKS]){"", "x\n", "other\n"}, NULL);
    assert_int_equal(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    output_connect(launch.output, 0, out[0], ends[0]);
    assert_int_equal(__real_write(ends[1], "x", 1), 1);
    launch.root = 0;
    for (int r = 0; r < RANKS; r++) {
        launch.ranks[r].ended_at = AT;
        launch.ranks[r].fate = RANK_EXITED;
        launch.ranks[r].failed = true;
        launch.ranks[r].code = 5;
    }
    launch.cause = CAUSE_DEATH;
    report_root(&launch);
    static const char ROOT_0[] = "rank 6 (pid 4711, local rank 0, host mars) exited with status 5 "
                                 "at 14:03:22.123; last stderr: x";
    assert_string_equal(published_text, ROOT_0);
    (void)output_flush(launch.output, 0);
    screen_clear();
    report_others(&launch);
    assert_string_equal(said(), "ddprun: rank 7 (pid 4712) exited with status 5 at 14:03:22.123\n"
                                "ddprun: rank 8 (pid 4713) exited with status 5 at 14:03:22.123; "
                                "last stderr: other\n");
    close(out[1]);
    close(ends[1]);
    close_output();
}

// A usage error of rank 0, shown on the console, and the same errors of other ranks.
static void test_usage_error_of_rank_0(void **state) {
    (void)state;
    static const char *const error = "error: mine\n";
    open_output((const char *[RANKS]){error, error, "none\n"}, NULL);
    for (int r = 0; r < RANKS; r++) {
        launch.ranks[r].ended_at = AT;
        launch.ranks[r].fate = RANK_EXITED;
        launch.ranks[r].code = STATUS_USAGE;
    }
    static const char LAST[] = "ddprun: rank 8 (pid 4713) exited with status 2 at 14:03:22.123\n";
    for (int root = 0; root >= -1; root--) { // -1: a rank of another node
        char text[200];
        launch.root = root;
        report_others(&launch);
        snprintf(text, sizeof text, "%s%s%s",
                 root < 0 ? "ddprun: rank 6 (pid 4711) exited with status 2 at 14:03:22.123\n" : "",
                 root < 0 ? "ddprun: rank 7 (pid 4712) exited with status 2 at 14:03:22.123\n" : "",
                 LAST);
        assert_string_equal(said(), text);
        screen_clear();
    }
    close_output();
}

// A usage error that the console has shown is not repeated.
static void test_usage_error(void **state) {
    (void)state;
    LaunchedRank *root = &launch.ranks[1];
    root->ended_at = AT;
    root->fate = RANK_EXITED;
    open_output((const char *[RANKS]){"", "error: mine\n", "error: mine\n"}, "logs");
    launch.root = 1;
    root->code = STATUS_USAGE;
    check_root(CAUSE_DEATH, ROOT " exited with status 2 at 14:03:22.123; logs: logs/attempt_0/1");
    root->code = STATUS_FAILED;
    check_root(CAUSE_DEATH, ROOT " exited with status 1 at 14:03:22.123; last stderr: error: mine"
                                 "; logs: logs/attempt_0/1");
    // Ranks with the same error, or ended because of it, are not listed either.
    root->code = STATUS_USAGE;
    launch.ranks[2] = *root;
    launch.ranks[2].local_rank = 2;
    launch.ranks[0].fate = RANK_KILLED;
    launch.ranks[0].sent = SIGTERM;
    screen_clear();
    report_others(&launch);
    assert_string_equal(said(), "");
    launch.ranks[2].code = 3;
    launch.ranks[2].rank = 8;
    launch.ranks[0].fate = RANK_ALIVE;
    report_others(&launch);
    assert_string_equal(said(), "ddprun: rank 6 (pid 4711) cannot be killed; it is left behind\n"
                                "ddprun: rank 8 (pid 4712) exited with status 3 at 14:03:22.123\n");
    close_output();
}

static void test_others(void **state) {
    (void)state;
    LaunchedRank *ranks = launch.ranks;
    open_output((const char *[RANKS]){"same\n", "same\n", "own\n"}, NULL);
    launch.root = 1;
    for (int r = 0; r < RANKS; r++) {
        beat(r, "train", 0);
        ranks[r].fate = RANK_EXITED;
        ranks[r].failed = true;
        ranks[r].code = 5;
        ranks[r].ended_at = AT;
    }
    report_others(&launch);
    assert_string_equal(
        said(), "ddprun: rank 6 (pid 4711) exited with status 5 at 14:03:22.123 in phase train, "
                "step 17\nddprun: rank 8 (pid 4713) exited with status 5 at 14:03:22.123 in phase "
                "train, step 17; last stderr: own\n");
    screen_clear();
    launch.root = -1; // on another node: no last line is repeated
    ranks[0].fate = RANK_KILLED;
    ranks[0].sent = SIGKILL;
    ranks[1].code = 0;
    ranks[1].failed = false;
    ranks[2].fate = RANK_ALIVE;
    ranks[2].failed = false;
    report_others(&launch);
    assert_string_equal(
        said(), "ddprun: rank 6 (pid 4711) was ended by ddprun with SIGKILL in phase train, step "
                "17\nddprun: rank 7 (pid 4712) exited with status 0 at 14:03:22.123 in phase "
                "train, step 17\nddprun: rank 8 (pid 4713) cannot be killed; it is left behind\n");
    screen_clear();
    launch.root = 0;
    launch.started = 1;
    ranks[2].fate = RANK_ABSENT;
    report_others(&launch);
    assert_string_equal(said(), "ddprun: ranks 7 to 8 were not started\n");
    screen_clear();
    launch.started = RANKS;
    ranks[1].fate = RANK_ABSENT;
    report_others(&launch);
    assert_string_equal(said(), "");
    close_output();
}

#define WATCHED(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silence), WATCHED(test_clocks_start_anew),
        WATCHED(test_lateness),         WATCHED(test_root),
        WATCHED(test_root_0),           WATCHED(test_usage_error_of_rank_0),
        WATCHED(test_usage_error),      WATCHED(test_others),
    };
    return cmocka_run_group_tests(tests, make_screen, free_screen);
}
