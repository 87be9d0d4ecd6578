/* heartbeat_monitor.c: detects ranks that are stopped, silent or late (ddp/launch/launch.h).
 *
 *   state    time-out             measured from
 *   init     --start-timeout      the rank's first heartbeat, until its phase "init" ends
 *   running  --heartbeat-timeout  the last heartbeat
 *   stopped  the smaller of that  SIGSTOP, which the kernel reports
 *            and 30 s
 *   late     --exit-timeout       the first exit with status 0, until the rank's own exit
 *
 * When one rank falls silent, the ranks that wait for it soon do, too. The root cause is the rank
 * that the others wait for: find_culprit.
 *
 * Silence is measured between the launcher's own checks: if the whole job, launcher included, was
 * suspended, the clocks start anew.
 */
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "ddp/launch/launch.h"

#define STOPPED_S   30.0
#define SUSPENDED_S 5.0 // between two checks: the launcher itself was suspended

// ---- Reading the heartbeats

static void read_heartbeats(Launch *launch) {
    const uint64_t now = clock_ns();
    bool was_suspended =
        launch->checked_ns && clock_seconds_since(launch->checked_ns) > SUSPENDED_S;
    for (int r = 0; r < launch->options->local_ranks; r++) {
        LaunchedRank *rank = &launch->ranks[r];
        uint64_t beat_ns = heartbeat_board_read(&launch->board, r).beat_ns;
        if (beat_ns != rank->beat_ns || was_suspended) rank->heard_ns = now;
        if (was_suspended) rank->stopped_ns = now;
        rank->beat_ns = beat_ns;
    }
    launch->checked_ns = now;
}

// ---- Time-outs

// The rank is in its rendezvous, or has not called pg_enter since.
static bool is_starting(const Launch *launch, const LaunchedRank *rank) {
    HeartbeatView view = heartbeat_board_read(&launch->board, rank->local_rank);
    return view.phase[0] == '\0' || strcmp(view.phase, "init") == 0;
}

static bool is_overdue(const Launch *launch, const LaunchedRank *rank) {
    const LaunchOptions *o = launch->options;
    if (rank->stopped)
        return clock_seconds_since(rank->stopped_ns) > fmin(STOPPED_S, o->heartbeat_s);
    if (rank->beat_ns == 0) return false; // the program sends no heartbeats
    double limit_s = is_starting(launch, rank) ? o->start_timeout_s : o->heartbeat_s;
    return clock_seconds_since(rank->heard_ns) > limit_s;
}

// Whether rank a is the likelier culprit than b. In this order: a stopped rank, the lower number of
// collectives, the older heartbeat; a rank without any heartbeat has 0 of both.
static bool is_likelier(const Launch *launch, const LaunchedRank *a, const LaunchedRank *b) {
    if (a->stopped != b->stopped) return a->stopped;
    HeartbeatView left = heartbeat_board_read(&launch->board, a->local_rank);
    HeartbeatView right = heartbeat_board_read(&launch->board, b->local_rank);
    if (left.sequence != right.sequence) return left.sequence < right.sequence;
    return left.beat_ns < right.beat_ns;
}

// The rank that the others wait for. Ranks that never sent a heartbeat count at the start only.
static int find_culprit(const Launch *launch, bool starting) {
    const LaunchedRank *ranks = launch->ranks;
    int culprit = -1;
    for (int r = 0; r < launch->options->local_ranks; r++) {
        bool heard = ranks[r].beat_ns != 0 || ranks[r].stopped;
        if (ranks[r].fate != RANK_ALIVE || (!heard && !starting)) continue;
        if (culprit < 0 || is_likelier(launch, &ranks[r], &ranks[culprit])) culprit = r;
    }
    return culprit;
}

static bool end_silence(Launch *launch) {
    if (launch->options->heartbeat_s <= 0) return false;
    for (int r = 0; r < launch->options->local_ranks; r++) {
        const LaunchedRank *rank = &launch->ranks[r];
        if (rank->fate != RANK_ALIVE || !is_overdue(launch, rank)) continue;
        int culprit = find_culprit(launch, is_starting(launch, rank));
        bool stopped = launch->ranks[culprit].stopped;
        launch_fail(launch, stopped ? CAUSE_STOPPED : CAUSE_SILENT, culprit);
        return true;
    }
    return false;
}

static bool end_lateness(Launch *launch) {
    double limit_s = launch->options->exit_timeout_s;
    if (!launch->first_good_end_ns || clock_seconds_since(launch->first_good_end_ns) <= limit_s)
        return false;
    int r = 0;
    while (launch->ranks[r].fate != RANK_ALIVE) r++;
    launch_fail(launch, CAUSE_LATE, r);
    return true;
}

void launch_check_health(Launch *launch) {
    if (launch->alive == 0) return;
    read_heartbeats(launch);
    if (!end_silence(launch) && !end_lateness(launch)) launch_check_nodes(launch);
}
