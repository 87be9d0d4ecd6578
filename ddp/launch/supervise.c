/* supervise.c: supervises one attempt's ranks, from fork to the last exit (ddp/launch/launch.h).
 *
 * One loop: poll (output, signals, starting ranks, the next health check), take signals, reap
 * ranks, start more of them (spawn.c), decide.
 *
 * The root is the rank that failed first. Several deaths may precede one SIGCHLD, so the loop
 * collects deaths for 100 ms before it names the root. A rank that exited with STATUS_FAILED may
 * have lost a peer only, unless its heartbeat marks it as the culprit. If all failures are such
 * consequences, the loop collects for up to a second: the death that caused them precedes them.
 *
 *   stage    deadline                                next stage
 *   RUNNING  none; heartbeat_monitor.c has its own   DOUBTING after a failure
 *   DOUBTING 0.1 s or 1 s                            ENDING, after the root is reported
 *   ENDING   --grace-seconds                         KILLING
 *   KILLING  30 s                                    the loop ends
 */
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp/launch/launch.h"

#define DOUBT_S       0.1
#define CONSEQUENCE_S 1.0
#define KILL_S        30.0 // to die of SIGKILL: a system call in a driver may delay it

// ---- Waiting

void launch_wait(Launch *launch, uint64_t until_ns) {
    uint64_t now = clock_ns(), look_ns = now + (uint64_t)(launch->options->monitor_s * 1e9);
    if (until_ns > look_ns) until_ns = look_ns;
    int timeout_ms = until_ns > now ? (int)((until_ns - now + 999999) / 1000000) : 0;
    struct pollfd entries[OUTPUT_POLL_MAX + 1 + STARTS_AT_A_TIME];
    size_t count = output_poll(launch->output, entries);
    entries[count++] = (struct pollfd){.fd = launch->signal_fd, .events = POLLIN};
    for (int r = 0; r < launch->started; r++) {
        int fd = launch->ranks[r].start_fd;
        if (fd >= 0) entries[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    (void)poll(entries, (nfds_t)count, timeout_ms);
    output_pump(launch->output);
}

int launch_take_signal(Launch *launch) {
    struct signalfd_siginfo info;
    int taken = 0;
    while (read(launch->signal_fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD) taken = (int)info.ssi_signo;
    return taken;
}

// ---- Ending the ranks

static void signal_ranks(Launch *launch, int number) {
    for (int r = 0; r < launch->options->local_ranks; r++) {
        LaunchedRank *rank = &launch->ranks[r];
        if (rank->fate != RANK_ALIVE) continue;
        rank->sent = number;
        kill(-rank->pid, number);
        kill(-rank->pid, SIGCONT); // a stopped process handles signals only after SIGCONT
    }
}

static void begin_stage(Launch *launch, LaunchStage stage, double seconds) {
    launch->stage = stage;
    launch->act_at_ns = clock_ns_after(seconds);
}

void launch_end_ranks(Launch *launch, LaunchCause cause, int signal_number) {
    launch->cause = cause;
    signal_ranks(launch, signal_number);
    begin_stage(launch, LAUNCH_ENDING, launch->options->grace_s);
}

static void kill_ranks(Launch *launch) {
    signal_ranks(launch, SIGKILL);
    begin_stage(launch, LAUNCH_KILLING, KILL_S);
}

void launch_fail(Launch *launch, LaunchCause cause, int root) {
    launch->root = root;
    launch->cause = cause;
    report_root(launch);
    launch_end_ranks(launch, cause, SIGTERM);
}

// ---- Reaping

// A rank that has lost a peer exits with STATUS_FAILED, too.
static bool may_be_consequence(const Launch *launch, const LaunchedRank *rank) {
    return rank->fate == RANK_EXITED && rank->code == STATUS_FAILED &&
           !heartbeat_board_read(&launch->board, rank->local_rank).culprit;
}

// After a failure, postpones naming the root: by DOUBT_S if it cannot be a consequence and
// no flight records are pending (ddp/group/flight_recorder.h), else by CONSEQUENCE_S.
static void note_end(Launch *launch, LaunchedRank *rank, const siginfo_t *info) {
    rank->fate = info->si_code == CLD_EXITED ? RANK_EXITED : RANK_KILLED;
    rank->code = info->si_status;
    rank->core_dumped = info->si_code == CLD_DUMPED;
    rank->ended_ns = clock_ns();
    clock_gettime(CLOCK_REALTIME, &rank->ended_at);
    launch->alive--;
    rank->failed = rank->fate == RANK_KILLED || rank->code != 0;
    if (!rank->failed) {
        if (!launch->first_good_end_ns) launch->first_good_end_ns = rank->ended_ns;
        return;
    }
    bool waits = getenv("DDPC_FLIGHT_DIR") || may_be_consequence(launch, rank);
    double seconds = waits ? CONSEQUENCE_S : DOUBT_S;
    if (launch->stage == LAUNCH_RUNNING) begin_stage(launch, LAUNCH_DOUBTING, seconds);
    if (launch->stage != LAUNCH_DOUBTING) return;
    if (launch->act_at_ns > clock_ns_after(seconds)) launch->act_at_ns = clock_ns_after(seconds);
}

// Kills the rest of the rank's process group, then reaps the rank: not before, because its number
// could be reused by then.
static void reap_rank(Launch *launch, LaunchedRank *rank) {
    siginfo_t info = {0};
    int news = WEXITED | WSTOPPED | WCONTINUED;
    int status = waitid(P_PID, (id_t)rank->pid, &info, news | WNOHANG | WNOWAIT);
    if (status != 0 || info.si_pid == 0) return;
    if (info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED) {
        rank->stopped = info.si_code == CLD_STOPPED;
        rank->stopped_ns = clock_ns();
        if (rank->stopped) clock_gettime(CLOCK_REALTIME, &rank->stopped_at);
        (void)waitid(P_PID, (id_t)rank->pid, &info, WSTOPPED | WCONTINUED | WNOHANG);
        return;
    }
    launch_watch_start(launch, rank->local_rank); // reads why exec failed
    kill(-rank->pid, SIGKILL);
    guard_tell(&launch->guard, -rank->pid);
    (void)waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG);
    note_end(launch, rank, &info);
}

static void reap(Launch *launch) {
    for (int r = 0; r < launch->started; r++) {
        launch_watch_start(launch, r);
        if (launch->ranks[r].fate == RANK_ALIVE) reap_rank(launch, &launch->ranks[r]);
    }
}

// ---- The root

static bool comes_before(const Launch *launch, const LaunchedRank *a, const LaunchedRank *b) {
    bool a_later = may_be_consequence(launch, a), b_later = may_be_consequence(launch, b);
    return a_later != b_later ? b_later : a->ended_ns < b->ended_ns;
}

static void judge(Launch *launch) {
    int root = -1, stopped = -1;
    for (int r = 0; r < launch->options->local_ranks; r++) {
        const LaunchedRank *rank = &launch->ranks[r];
        if (rank->fate == RANK_ALIVE && rank->stopped) stopped = r;
        if (!rank->failed || rank->sent) continue;
        if (root < 0 || comes_before(launch, rank, &launch->ranks[root])) root = r;
    }
    CHECK(root >= 0, "judging without a failure");
    if (launch->elastic && may_be_consequence(launch, &launch->ranks[root])) {
        launch->next_beat_ns = 0; // now: has another node ended the generation?
        launch_check_nodes(launch);
        if (launch->stage != LAUNCH_DOUBTING) return;
    }
    if (stopped >= 0 && may_be_consequence(launch, &launch->ranks[root]))
        launch_fail(launch, CAUSE_STOPPED, stopped);
    else
        launch_fail(launch, CAUSE_DEATH, root);
}

// ---- The loop

static void react_to_signal(Launch *launch, int number) {
    char name[24];
    bool again = launch->stage == LAUNCH_ENDING || launch->stage == LAUNCH_KILLING;
    launch->caught = number;
    report_signal(number, name);
    if (again) {
        output_say(launch->output, "received %s: killing the ranks that are left", name);
        kill_ranks(launch);
        return;
    }
    output_say(launch->output, "received %s: ending all ranks", name);
    char why[64];
    snprintf(why, sizeof why, "its ddprun received %s", name);
    launch_publish_end(launch, END_STOPPED, why);
    launch_end_ranks(launch, CAUSE_SIGNAL, number);
}

static void decide(Launch *launch) {
    bool due = clock_ns() >= launch->act_at_ns;
    if (launch->stage == LAUNCH_RUNNING)
        launch_check_health(launch);
    else if (launch->stage == LAUNCH_DOUBTING && (due || launch->alive == 0))
        judge(launch);
    else if (launch->stage == LAUNCH_ENDING && due)
        kill_ranks(launch);
    if (launch->stage != LAUNCH_RUNNING) launch_beat(launch);
}

static bool is_over(const Launch *launch) {
    bool more_to_start = launch->started < launch->options->local_ranks;
    if (launch->stage == LAUNCH_RUNNING) return launch->alive == 0 && !more_to_start;
    return launch->stage != LAUNCH_DOUBTING && launch->alive == 0;
}

void launch_supervise(Launch *launch) {
    launch_start_some(launch);
    while (!is_over(launch)) {
        bool running = launch->stage == LAUNCH_RUNNING;
        launch_wait(launch, running ? UINT64_MAX : launch->act_at_ns);
        int number = launch_take_signal(launch);
        reap(launch);
        if (number) react_to_signal(launch, number);
        launch_start_some(launch);
        decide(launch);
        if (launch->stage == LAUNCH_KILLING && clock_ns() >= launch->act_at_ns) return;
    }
}
