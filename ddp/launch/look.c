/* look.c: the look at ranks that have not ended (ddp/launch/launch.h): is one stopped, silent or
 * late?
 *
 * Each phase has a deadline. --start-timeout counts from a rank's first heartbeat to the end of its
 * phase "init", --heartbeat-timeout from one heartbeat to the next afterwards, and --exit-timeout
 * from the first rank's end to the last one's. The kernel says when a process is stopped;
 * nothing is computed then, so 30 s are enough. Ranks wait for each other, so when one falls silent
 * soon all are: the one to name is the one that the others wait for.
 *
 * Silence is measured with the launcher's own looks, so that a job that was suspended as a whole,
 * launcher included, goes on.
 */
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "ddp/launch/launch.h"

#define STOPPED_S 30.0
#define AWAY_S    5.0 // if two looks are further apart, the launcher itself was stopped

// ---- Hearing

static void listen_to(Launch *launch, LaunchedRank *rank, bool was_away) {
    uint64_t beat_ns = heartbeat_board_read(launch->board, rank->local_rank).beat_ns;
    if (beat_ns != rank->beat_ns || was_away) rank->heard_ns = clock_ns();
    if (was_away) rank->stopped_ns = clock_ns();
    rank->beat_ns = beat_ns;
}

static void listen_to_all(Launch *launch) {
    bool was_away = launch->looked_ns && clock_seconds_since(launch->looked_ns) > AWAY_S;
    for (int r = 0; r < launch->options->local_ranks; r++)
        if (launch->ranks[r].fate == RANK_ALIVE) listen_to(launch, &launch->ranks[r], was_away);
    launch->looked_ns = clock_ns();
}

// ---- Judging

static bool is_starting(const Launch *launch, const LaunchedRank *rank) {
    return strcmp(heartbeat_board_read(launch->board, rank->local_rank).phase, "init") == 0;
}

static bool is_overdue(const Launch *launch, const LaunchedRank *rank) {
    const LaunchOptions *o = launch->options;
    if (rank->stopped)
        return clock_seconds_since(rank->stopped_ns) > fmin(STOPPED_S, o->heartbeat_s);
    if (rank->beat_ns == 0) return false; // the program sends no heartbeats
    double limit_s = is_starting(launch, rank) ? o->start_timeout_s : o->heartbeat_s;
    return clock_seconds_since(rank->heard_ns) > limit_s;
}

// Does rank a hold up the others rather than b? A stopped one does, then the one that has come to
// the fewest collectives (none, if it has not begun), then the one that was heard longest ago.
static bool holds_up(const Launch *launch, const LaunchedRank *a, const LaunchedRank *b) {
    if (a->stopped != b->stopped) return a->stopped;
    if ((a->beat_ns == 0) != (b->beat_ns == 0)) return a->beat_ns == 0;
    HeartbeatView left = heartbeat_board_read(launch->board, a->local_rank);
    HeartbeatView right = heartbeat_board_read(launch->board, b->local_rank);
    if (left.sequence != right.sequence) return left.sequence < right.sequence;
    return left.beat_ns < right.beat_ns;
}

// The rank that all wait for. One that never sent a heartbeat is waited for at the start only.
static int find_culprit(const Launch *launch, bool starting) {
    const LaunchedRank *ranks = launch->ranks;
    int culprit = -1;
    for (int r = 0; r < launch->options->local_ranks; r++) {
        bool heard = ranks[r].beat_ns != 0 || ranks[r].stopped;
        if (ranks[r].fate != RANK_ALIVE || (!heard && !starting)) continue;
        if (culprit < 0 || holds_up(launch, &ranks[r], &ranks[culprit])) culprit = r;
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

static void look_at_nodes(Launch *launch) {
    char text[1024];
    NodesNews news = nodes_look(launch->nodes, launch->attempt, text, sizeof text);
    if (news == NODES_FINE) return;
    output_say(launch->output, "%s", text);
    nodes_tell(launch->nodes, launch->attempt, news == NODES_STOPPED, text);
    if (news == NODES_STOPPED) launch->no_restart = true;
    launch_end_ranks(launch, CAUSE_NODES, SIGTERM);
}

void launch_look(Launch *launch) {
    if (launch->alive == 0) return;
    listen_to_all(launch);
    if (!end_silence(launch) && !end_lateness(launch)) look_at_nodes(launch);
}
