/* test_supervise.c: supervision of an attempt's ranks (ddp/launch/supervise.c): the ranks that it
 * ends, when, and the rank that it names as the root of a failure. Ranks, signals and the clock are
 * simulated: each case is a list of events, and the tests never wait.
 */
#include "tests/rigs/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp/launch/launch.h"

enum { RANKS = 3, PID = 100 }; // local rank r has pid PID + r

// ---- Events -----------------------------------------------------------------------------------

typedef enum What { NOTHING, EXITS, DIES, DUMPS, STOPS, CONTINUES, SIGNAL, STARTS } What;

typedef struct Event {
    int at_ms;
    What what;
    int rank, value; // value: exit status or signal
} Event;

enum { EVENTS = 6, NEVER = 1 << 30 };

typedef struct Script {
    Event events[EVENTS];
    int ends_ms[RANKS]; // delay of the end after SIGTERM or SIGINT; NEVER: ignored
    bool immortal;      // rank 2 survives SIGKILL
    bool culprit[RANKS];
    bool elastic, peer_ended; // elastic nodes; another node has ended the attempt
    int started;              // ranks started at first; 0: all
} Script;

static const Script *script;
static int now_ms, happened; // the clock; number of events so far
static siginfo_t news[RANKS];
static int dies_ms[RANKS], dies_of[RANKS]; // pending deaths by the launcher's signals
static bool rest_killed[RANKS], continued[RANKS], watched[RANKS];
static int polls, pumps, health_checks, beats, watches[RANKS]; // numbers of calls
static int signal_ends[2];
static bool waits_only; // poll only records its arguments
static int asked_ms;
static struct pollfd asked[4];
static char log_text[4000];

static LaunchOptions options;
static Launch launch;
static LaunchedRank *keeper; // receives the final records of ranks; NULL: none

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
    const size_t used = strlen(log_text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(log_text + used, sizeof log_text - used, format, arguments);
    va_end(arguments);
}

static void change(int r, int code, int status) {
    news[r] = (siginfo_t){.si_signo = SIGCHLD, .si_code = code, .si_pid = PID + r};
    news[r].si_status = status;
}

static void happen(const Event *e) {
    struct signalfd_siginfo info = {.ssi_signo = (uint32_t)e->value};
    switch (e->what) {
    case EXITS:
        change(e->rank, CLD_EXITED, e->value);
        break;
    case DIES:
        change(e->rank, CLD_KILLED, e->value);
        break;
    case DUMPS:
        change(e->rank, CLD_DUMPED, e->value);
        break;
    case STOPS:
        change(e->rank, CLD_STOPPED, SIGSTOP);
        break;
    case CONTINUES:
        change(e->rank, CLD_CONTINUED, SIGCONT);
        break;
    case SIGNAL:
        assert_int_equal(write(signal_ends[1], &info, sizeof info), sizeof info);
        break;
    case STARTS:
    case NOTHING:
        break;
    }
}

// Time of the next event or death.
static int next_ms(void) {
    int next =
        happened < EVENTS && script->events[happened].what ? script->events[happened].at_ms : NEVER;
    for (int r = 0; r < RANKS; r++)
        if (dies_ms[r] < next) next = dies_ms[r];
    return next;
}

static void happen_until(int ms) {
    while (happened < EVENTS && script->events[happened].what &&
           script->events[happened].at_ms <= ms)
        happen(&script->events[happened++]);
    for (int r = 0; r < RANKS; r++) {
        if (dies_ms[r] > ms) continue;
        if (launch.ranks[r].fate == RANK_ALIVE) change(r, CLD_KILLED, dies_of[r]);
        dies_ms[r] = NEVER;
    }
}

// ---- System calls -----------------------------------------------------------------------------

uint64_t __wrap_clock_ns(void);
uint64_t __wrap_clock_ns_after(double seconds);
int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms);
int __wrap_kill(pid_t pid, int number);
int __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int wanted);

uint64_t __wrap_clock_ns(void) {
    return (uint64_t)now_ms * 1000000 + 1000000000;
}

uint64_t __wrap_clock_ns_after(double seconds) {
    return __wrap_clock_ns() + (uint64_t)(seconds * 1e9 + 0.5);
}

// Advances the clock to the next event, at most to the next health check.
int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms) {
    if (waits_only) {
        asked_ms = timeout_ms;
        memset(asked, 0, sizeof asked);
        memcpy(asked, entries, count * sizeof *entries);
        return 0;
    }
    assert_int_equal(pumps, polls++); // output is pumped before each poll
    assert_in_range(count, 1, 1 + RANKS);
    assert_int_equal(entries[0].fd, signal_ends[0]);
    for (nfds_t i = 0; i < count; i++) assert_int_equal(entries[i].events, POLLIN);
    assert_in_range(timeout_ms, 0, 100);
    const int next = next_ms(), until = now_ms + timeout_ms;
    now_ms = next < until ? next > now_ms ? next : now_ms : until;
    happen_until(now_ms);
    assert_true(now_ms < 100000);
    return 0;
}

// Records signals to process groups, except SIGCONT and the SIGKILL for the processes that an ended
// rank left.
int __wrap_kill(pid_t pid, int number) {
    const int r = -pid - PID;
    assert_in_range(r, 0, RANKS - 1);
    const int code = news[r].si_code;
    const bool ended = code == CLD_EXITED || code == CLD_KILLED || code == CLD_DUMPED;
    if (ended && number == SIGKILL) rest_killed[r] = true;
    if (number == SIGCONT) continued[r] = true;
    if (ended || number == SIGCONT) return 0;
    assert_int_equal(launch.ranks[r].sent, number);
    continued[r] = false;
    note("%d: %d to %d\n", now_ms, number, r);
    const int after =
        number == SIGKILL ? (script->immortal && r == 2 ? NEVER : 0) : script->ends_ms[r];
    if (after == NEVER) return 0;
    dies_ms[r] = now_ms + after;
    dies_of[r] = number;
    return 0;
}

int __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int wanted) {
    const int r = (int)id - PID, code = news[r].si_code;
    assert_int_equal(type, P_PID);
    assert_in_range(r, 0, RANKS - 1);
    assert_true(wanted & WNOHANG);
    const int kind = code == CLD_STOPPED ? WSTOPPED : code == CLD_CONTINUED ? WCONTINUED : WEXITED;
    *info = (siginfo_t){.si_pid = 0};
    if (wanted & WNOWAIT) watched[r] = false;
    if (!code || !(wanted & kind)) return 0;
    *info = news[r];
    if (!(wanted & WNOWAIT)) news[r] = (siginfo_t){.si_pid = 0};
    return 0;
}

// ---- Simulated parts of ddprun ----------------------------------------------------------------

void launch_start_some(Launch *of) {
    const bool may = script->started == 0 || now_ms >= 500;
    while (of->stage == LAUNCH_RUNNING && of->started < (may ? RANKS : script->started)) {
        LaunchedRank *rank = &of->ranks[of->started++];
        rank->fate = RANK_ALIVE;
        rank->heard_ns = clock_ns();
        of->alive++;
    }
}

void launch_watch_start(Launch *of, int r) {
    assert_in_range(r, 0, of->started - 1);
    watched[r] = true;
    watches[r]++;
}

void launch_check_health(Launch *of) {
    assert_int_equal(of->stage, LAUNCH_RUNNING);
    health_checks++;
}

void launch_beat(Launch *of) {
    assert_int_not_equal(of->stage, LAUNCH_RUNNING);
    beats++;
}

void launch_check_nodes(Launch *of) {
    assert_int_equal(of->next_beat_ns, 0); // now
    note("%d: nodes\n", now_ms);
    if (script->peer_ended) launch_end_ranks(of, CAUSE_NODES, SIGTERM);
}

void launch_publish_end(Launch *of, LaunchEnd end, const char *why) {
    (void)of;
    note("%d: end %d: %s\n", now_ms, (int)end, why);
}

void report_root(Launch *of) {
    note("%d: root %d, cause %d\n", now_ms, of->root, (int)of->cause);
}

const char *report_signal(int number, char text[24]) {
    snprintf(text, 24, "signal %d", number);
    return text;
}

HeartbeatView heartbeat_board_read(const HeartbeatBoard *board, int local_rank) {
    (void)board;
    return (HeartbeatView){.culprit = script->culprit[local_rank]};
}

size_t output_poll(const Output *output, struct pollfd *entries) {
    (void)output, (void)entries;
    return 0;
}

void output_pump(Output *output) {
    (void)output;
    pumps++;
}

void output_say(Output *output, const char *format, ...) {
    char text[200];
    va_list arguments;
    (void)output;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    note("%d: %s\n", now_ms, text);
}

void guard_tell(const Guard *guard, pid_t message) {
    (void)guard;
    assert_in_range(-message, PID, PID + RANKS - 1);
    const int r = -message - PID;
    assert_true(watched[r]);     // the start pipe of the ended rank was read
    assert_true(rest_killed[r]); // before the pid can be reused
    assert_true(continued[r]);   // after each signal, because the rank may be stopped
    note("%d: %d has ended\n", now_ms, r);
}

// ---- Waiting ----------------------------------------------------------------------------------

// Waits until the given time, rounded up to milliseconds, at most until the next health check.
// Ranks that were forked and do not run yet are polled.
static void test_wait(void **state) {
    (void)state;
    static const struct {
        int64_t from_now_ns;
        int ms;
    } waits[] = {{-5000000, 0}, {0, 0},          {1, 1},           {1000000, 1},
                 {1000001, 2},  {99000001, 100}, {100000001, 100}, {INT64_MAX, 100}};
    LaunchedRank ranks[3] = {{.start_fd = 70}, {.start_fd = -1}, {.start_fd = 72}};
    options = (LaunchOptions){.monitor_s = 0.1};
    launch = (Launch){.options = &options, .ranks = ranks, .started = 2, .signal_fd = 60};
    waits_only = true;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        launch_wait(&launch, clock_ns() + (uint64_t)waits[i].from_now_ns);
        assert_int_equal(asked_ms, waits[i].ms);
        assert_int_equal(asked[0].fd, 60);
        assert_int_equal(asked[1].fd, 70);
        assert_int_equal(asked[2].events, 0); // only two ranks were started
    }
    waits_only = false;
}

// ---- Cases ------------------------------------------------------------------------------------

// Supervises the ranks of one attempt, which must end at end_ms with the log `wanted` (NULL: any).
static void supervise(const Script *what, int end_ms, const char *wanted) {
    struct Elastic *elastic = (struct Elastic *)(void *)&options; // only compared with NULL
    script = what;
    now_ms = happened = polls = pumps = health_checks = beats = 0;
    log_text[0] = '\0';
    memset(news, 0, sizeof news);
    assert_int_equal(pipe2(signal_ends, O_CLOEXEC | O_NONBLOCK), 0);
    options = (LaunchOptions){.local_ranks = RANKS, .monitor_s = 0.1, .grace_s = 5};
    launch = (Launch){.options = &options, .root = -1, .signal_fd = signal_ends[0]};
    launch.elastic = what->elastic ? elastic : NULL;
    launch.next_beat_ns = 1;
    launch.ranks = calloc(RANKS + 1, sizeof *launch.ranks);
    launch.ranks[RANKS] = (LaunchedRank){.pid = PID + RANKS, .fate = RANK_ALIVE, .failed = true};
    for (int r = 0; r < RANKS; r++) { // the entry behind them is not a rank
        watched[r] = false;
        watches[r] = 0;
        launch.ranks[r] = (LaunchedRank){.local_rank = r, .pid = PID + r, .start_fd = -1};
        dies_ms[r] = NEVER;
        rest_killed[r] = false;
        continued[r] = true;
    }
    launch_supervise(&launch);
    close(signal_ends[0]);
    close(signal_ends[1]);
    if (wanted) assert_string_equal(log_text, wanted);
    assert_int_equal(now_ms, end_ms);
    if (keeper) memcpy(keeper, launch.ranks, RANKS * sizeof *keeper);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(launch.ranks[r].fate == RANK_ALIVE, r == 2 && what->immortal);
        assert_int_equal(news[r].si_code, 0); // was reaped
        assert_true(watches[r] > 0);
    }
    assert_int_equal(launch.alive, what->immortal);
    assert_int_equal(pumps, polls);
    assert_int_equal(beats > 0, launch.stage != LAUNCH_RUNNING);
    free(launch.ranks);
}

static void test_all_end_well(void **state) {
    (void)state;
    const Script s = {.events = {{1000, EXITS, 1, 0}, {2000, EXITS, 0, 0}, {3050, EXITS, 2, 0}}};
    supervise(&s, 3050, "1000: 1 has ended\n2000: 0 has ended\n3050: 2 has ended\n");
    assert_int_equal(launch.cause, CAUSE_NONE);
    assert_int_equal(launch.root, -1);
    assert_in_range(health_checks, 30, polls);              // every 100 ms
    assert_int_equal(launch.first_good_end_ns, 2000000000); // at 1000 ms; the clock starts at 1 s
    // A rank that ends before the others are started.
    const Script early = {.events = {{100, EXITS, 0, 0}, {900, EXITS, 1, 0}, {950, EXITS, 2, 0}},
                          .started = 1};
    supervise(&early, 950, "100: 0 has ended\n900: 1 has ended\n950: 2 has ended\n");
}

// The root is determined 0.1 s after a failure, or 1 s after a failure that may be a consequence.
static void test_roots(void **state) {
    (void)state;
    Script s = {.events = {{1000, EXITS, 1, 3}}, .ends_ms = {200, 200, 300}};
    supervise(&s, 1400,
              "1000: 1 has ended\n1100: root 1, cause 1\n1100: 15 to 0\n1100: 15 to 2\n"
              "1300: 0 has ended\n1400: 2 has ended\n");
    assert_int_equal(launch.cause, CAUSE_DEATH);
    s = (Script){.events = {{1000, EXITS, 0, 1}, {1500, DIES, 2, 9}}};
    supervise(&s, 1600,
              "1000: 0 has ended\n1500: 2 has ended\n1600: root 2, cause 1\n"
              "1600: 15 to 1\n1600: 1 has ended\n");
    s = (Script){.events = {{1000, EXITS, 2, 1}}};
    supervise(&s, 2000,
              "1000: 2 has ended\n2000: root 2, cause 1\n2000: 15 to 0\n2000: 15 to 1\n"
              "2000: 0 has ended\n2000: 1 has ended\n");
    s.culprit[2] = true; // its heartbeat reports an own error
    supervise(&s, 1100,
              "1000: 2 has ended\n1100: root 2, cause 1\n1100: 15 to 0\n1100: 15 to 1\n"
              "1100: 0 has ended\n1100: 1 has ended\n");
    // Among several failures the first is the root; consequences count only if there is nothing
    // else.
    s = (Script){.events = {{1000, EXITS, 2, 3}, {1010, EXITS, 0, 3}, {1020, EXITS, 1, 3}}};
    supervise(&s, 1020,
              "1000: 2 has ended\n1010: 0 has ended\n1020: 1 has ended\n"
              "1020: root 2, cause 1\n"); // all ranks have ended: decided at once
    s = (Script){.events = {{1000, EXITS, 1, 3}, {1000, EXITS, 2, 3}, {1000, EXITS, 0, 3}}};
    supervise(&s, 1000, // at the same time: the lowest rank
              "1000: 0 has ended\n1000: 1 has ended\n1000: 2 has ended\n"
              "1000: root 0, cause 1\n");
    s = (Script){.events = {{1000, EXITS, 0, 1}, {1010, EXITS, 1, 1}, {1950, EXITS, 2, 1}}};
    supervise(&s, 1950,
              "1000: 0 has ended\n1010: 1 has ended\n1950: 2 has ended\n"
              "1950: root 0, cause 1\n");
    s.culprit[2] = true;
    supervise(&s, 1950,
              "1000: 0 has ended\n1010: 1 has ended\n1950: 2 has ended\n"
              "1950: root 2, cause 1\n");
    s = (Script){.events = {{1000, EXITS, 0, 1}, {1950, EXITS, 1, 3}}};
    supervise(&s, 2000,
              "1000: 0 has ended\n1950: 1 has ended\n2000: root 1, cause 1\n"
              "2000: 15 to 2\n2000: 2 has ended\n"); // when the root is determined
    setenv("DDPC_FLIGHT_DIR", "records", 1);         // ranks get time to write records
    s = (Script){.events = {{1000, DUMPS, 0, 11}}};
    supervise(&s, 2000,
              "1000: 0 has ended\n2000: root 0, cause 1\n2000: 15 to 1\n2000: 15 to 2\n"
              "2000: 1 has ended\n2000: 2 has ended\n");
    unsetenv("DDPC_FLIGHT_DIR");
}

// Copies each rank's final record, which the report uses.
static void keep_ranks(const Script *s, int end_ms, LaunchedRank kept[RANKS]) {
    keeper = kept;
    supervise(s, end_ms, NULL);
    keeper = NULL;
}

static void test_what_is_kept(void **state) {
    (void)state;
    LaunchedRank kept[RANKS];
    const time_t begin = time(NULL);
    const Script s = {.events = {{100, DUMPS, 0, 11}, {150, STOPS, 2, 0}, {160, EXITS, 1, 0}}};
    keep_ranks(&s, 200, kept);
    assert_int_equal(kept[0].fate, RANK_KILLED);
    assert_int_equal(kept[1].fate, RANK_EXITED);
    for (int r = 0; r < RANKS; r++) {
        static const int codes[] = {11, 0, SIGTERM}, sent[] = {0, 0, SIGTERM};
        static const uint64_t ended[] = {1100000000, 1160000000, 1200000000};
        assert_int_equal(kept[r].code, codes[r]);
        assert_int_equal(kept[r].sent, sent[r]);
        assert_int_equal(kept[r].failed, r != 1);
        assert_int_equal(kept[r].core_dumped, r == 0);
        assert_int_equal(kept[r].ended_ns, ended[r]);
        assert_true(kept[r].ended_at.tv_sec >= begin);
        assert_int_equal(kept[r].stopped, r == 2);
        assert_int_equal(kept[r].stopped_at.tv_sec >= begin, r == 2);
    }
    assert_int_equal(kept[2].stopped_ns, 1150000000);
}

// SIGKILL once the grace has passed; a rank that survives it is abandoned after 30 s.
static void test_ends_that_take_long(void **state) {
    (void)state;
    Script s = {.events = {{1000, EXITS, 1, 3}}, .ends_ms = {NEVER, 0, 0}};
    supervise(&s, 6100,
              "1000: 1 has ended\n1100: root 1, cause 1\n1100: 15 to 0\n1100: 15 to 2\n"
              "1100: 2 has ended\n6100: 9 to 0\n6100: 0 has ended\n");
    s = (Script){.events = {{1000, EXITS, 1, 3}}, .ends_ms = {0, 0, NEVER}, .immortal = true};
    supervise(&s, 36100,
              "1000: 1 has ended\n1100: root 1, cause 1\n1100: 15 to 0\n1100: 15 to 2\n"
              "1100: 0 has ended\n6100: 9 to 2\n");
    assert_int_equal(launch.stage, LAUNCH_KILLING);
}

static void test_stopped_ranks(void **state) {
    (void)state;
    Script s = {.events = {{500, STOPS, 2, 0}, {1000, EXITS, 0, 1}}};
    supervise(&s, 2000,
              "1000: 0 has ended\n2000: root 2, cause 2\n2000: 15 to 1\n2000: 15 to 2\n"
              "2000: 1 has ended\n2000: 2 has ended\n");
    s.events[1].value = 3; // an exit status that is no consequence
    supervise(&s, 1100,
              "1000: 0 has ended\n1100: root 0, cause 1\n1100: 15 to 1\n1100: 15 to 2\n"
              "1100: 1 has ended\n1100: 2 has ended\n");
    s = (Script){.events = {{500, STOPS, 2, 0}, {700, CONTINUES, 2, 0}, {1000, EXITS, 0, 1}}};
    supervise(&s, 2000,
              "1000: 0 has ended\n2000: root 0, cause 1\n2000: 15 to 1\n2000: 15 to 2\n"
              "2000: 1 has ended\n2000: 2 has ended\n");
    s = (Script){.events = {{500, STOPS, 0, 0}, {1000, EXITS, 1, 1}}};
    supervise(&s, 2000,
              "1000: 1 has ended\n2000: root 0, cause 2\n2000: 15 to 0\n2000: 15 to 2\n"
              "2000: 0 has ended\n2000: 2 has ended\n");
    // A rank that was stopped and then killed is not reported as stopped.
    s = (Script){.events = {{500, STOPS, 2, 0}, {1000, EXITS, 0, 1}, {1500, DIES, 2, 9}}};
    supervise(&s, 1600,
              "1000: 0 has ended\n1500: 2 has ended\n1600: root 2, cause 1\n"
              "1600: 15 to 1\n1600: 1 has ended\n");
}

static void test_signals(void **state) {
    (void)state;
    Script s = {.events = {{1000, SIGNAL, 0, SIGCHLD}, {2000, SIGNAL, 0, SIGINT}},
                .ends_ms = {100, 100, 100}};
    supervise(&s, 2100,
              "2000: received signal 2: ending all ranks\n"
              "2000: end 3: its ddprun received signal 2\n2000: 2 to 0\n2000: 2 to 1\n"
              "2000: 2 to 2\n2100: 0 has ended\n2100: 1 has ended\n2100: 2 has ended\n");
    assert_int_equal(launch.cause, CAUSE_SIGNAL);
    assert_int_equal(launch.caught, SIGINT);
    s = (Script){.events = {{1000, SIGNAL, 0, SIGINT},
                            {1000, SIGNAL, 0, SIGTERM},
                            {1000, SIGNAL, 0, SIGCHLD},
                            {3000, SIGNAL, 0, SIGHUP}},
                 .ends_ms = {NEVER, 0, 100}};
    supervise(&s, 3000,
              "1000: received signal 15: ending all ranks\n"
              "1000: end 3: its ddprun received signal 15\n1000: 15 to 0\n1000: 15 to 1\n"
              "1000: 15 to 2\n1000: 1 has ended\n1100: 2 has ended\n"
              "3000: received signal 1: killing the ranks that are left\n3000: 9 to 0\n"
              "3000: 0 has ended\n");
    assert_int_equal(launch.caught, SIGHUP);
    // A signal received while SIGKILL is pending sends SIGKILL again; received before the root is
    // determined, it is passed on first.
    s = (Script){.events = {{1000, SIGNAL, 0, SIGTERM}, {7000, SIGNAL, 0, SIGTERM}},
                 .ends_ms = {0, 0, NEVER},
                 .immortal = true};
    supervise(&s, 37000,
              "1000: received signal 15: ending all ranks\n"
              "1000: end 3: its ddprun received signal 15\n1000: 15 to 0\n1000: 15 to 1\n"
              "1000: 15 to 2\n1000: 0 has ended\n1000: 1 has ended\n6000: 9 to 2\n"
              "7000: received signal 15: killing the ranks that are left\n7000: 9 to 2\n");
    s = (Script){.events = {{1000, EXITS, 0, 1}, {1500, SIGNAL, 0, SIGTERM}}};
    supervise(&s, 1500,
              "1000: 0 has ended\n1500: received signal 15: ending all ranks\n"
              "1500: end 3: its ddprun received signal 15\n1500: 15 to 1\n1500: 15 to 2\n"
              "1500: 1 has ended\n1500: 2 has ended\n");
    assert_int_equal(launch.root, -1);
}

// With elastic nodes a failure may be a consequence of another node's end.
static void test_elastic_nodes(void **state) {
    (void)state;
    Script s = {.events = {{1000, EXITS, 0, 1}}, .elastic = true};
    supervise(&s, 2000,
              "1000: 0 has ended\n2000: nodes\n2000: root 0, cause 1\n2000: 15 to 1\n"
              "2000: 15 to 2\n2000: 1 has ended\n2000: 2 has ended\n");
    s.peer_ended = true;
    supervise(&s, 2000,
              "1000: 0 has ended\n2000: nodes\n2000: 15 to 1\n2000: 15 to 2\n"
              "2000: 1 has ended\n2000: 2 has ended\n");
    assert_int_equal(launch.cause, CAUSE_NODES);
    s.events[0].value = 3;
    supervise(&s, 1100,
              "1000: 0 has ended\n1100: root 0, cause 1\n1100: 15 to 1\n1100: 15 to 2\n"
              "1100: 1 has ended\n1100: 2 has ended\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_all_end_well),
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_ends_that_take_long),
        cmocka_unit_test(test_stopped_ranks),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_elastic_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
