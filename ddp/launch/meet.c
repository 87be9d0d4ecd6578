/* meet.c: where the launchers of several nodes wait for each other (ddp/launch/launch.h): at the
 * start, between attempts, and at the end. What they tell each other is in nodes.c.
 *
 * At the start every node waits until all are there, so that a node that never comes is named for
 * what it is. Its absence would otherwise look like silence of the ranks that wait for its ranks.
 */
#include <string.h>

#include "common/base/clock.h"
#include "ddp/launch/launch.h"

#define LINE_S    10.0 // between two lines that say for whom we wait
#define PARTING_S 5.0  // for the other nodes to have read that all is done

// ---- At the start

typedef struct Patience {
    double most_s, line_s;
    uint64_t begin_ns, next_line_ns;
} Patience;

static Patience patience_begin(double most_s) {
    double line_s = most_s / 4 < LINE_S ? most_s / 4 : LINE_S;
    return (Patience){most_s, line_s, clock_ns(), clock_ns_after(line_s)};
}

static bool patience_is_over(const Patience *patience) {
    return clock_seconds_since(patience->begin_ns) >= patience->most_s;
}

// Says from time to time what we wait for.
static void say_waiting(Launch *launch, Patience *patience, const char *for_whom) {
    if (clock_ns() < patience->next_line_ns) return;
    patience->next_line_ns = clock_ns_after(patience->line_s);
    output_say(launch->output, "waiting for %s: %.0f s of at most %g s (--start-timeout)", for_whom,
               clock_seconds_since(patience->begin_ns), patience->most_s);
}

// Lets output move and a little time pass. True: a signal came.
static bool pause_or_signal(Launch *launch) {
    launch_wait(launch, clock_ns_after(0.1));
    launch->caught = launch_take_signal(launch);
    return launch->caught != 0;
}

// The meeting comes before attempt 0. A node that has been told of it may be through attempt 0
// before the others ask again.
enum { WHOM_MAX = 1200, MEETING = -1 };

// "node 0 (cannot connect to ...)": why it cannot be reached, without the time of one attempt.
static void name_node_0(const Launch *launch, const Error *attempt, char whom[WHOM_MAX]) {
    const char *cause = attempt->message, *colon = strstr(cause, ": ");
    if (strncmp(cause, "no store within", 15) == 0 && colon) cause = colon + 2;
    snprintf(whom, WHOM_MAX, "node 0 of %d (%s)", launch->options->nodes, cause);
}

// Reaches node 0's store, which may be served later than this node is started.
static int reach_node_0(Launch *launch, Patience *patience, Error *err) {
    const LaunchOptions *o = launch->options;
    char whom[WHOM_MAX];
    for (;;) {
        Error attempt = {0};
        launch->nodes =
            nodes_join(o->nodes, o->node, o->master_addr, launch->port, launch->token, &attempt);
        if (launch->nodes) return 0;
        if (attempt.status != STATUS_FAILED)
            return error_set(err, attempt.status, "node %d: %s", o->node, attempt.message);
        name_node_0(launch, &attempt, whom);
        if (patience_is_over(patience))
            return error_set(err, STATUS_FAILED, "node %d could not reach %s within %g s", o->node,
                             whom, patience->most_s);
        say_waiting(launch, patience, whom);
        if (pause_or_signal(launch)) return launch->caught;
    }
}

static int fail_missing(Launch *launch, const char *missing, Error *err) {
    const LaunchOptions *o = launch->options;
    error_set(
        err, STATUS_FAILED,
        "%s of %d did not come within %g s: start ddprun there with --nnodes %d --node-rank N "
        "--master-addr %s --master-port %d and the same DDPRUN_TOKEN",
        missing, o->nodes, o->start_timeout_s, o->nodes, o->master_addr, launch->port);
    nodes_tell(launch->nodes, MEETING, true, err->message);
    return -1;
}

static int await_all(Launch *launch, Patience *patience, Error *err) {
    char missing[200], text[1024];
    nodes_arrive(launch->nodes, "there", 0);
    while (nodes_arrived(launch->nodes, "there", 0) < launch->options->nodes) {
        if (pause_or_signal(launch)) {
            nodes_tell(launch->nodes, MEETING, true, "its ddprun received a signal");
            return launch->caught;
        }
        if (nodes_look(launch->nodes, MEETING, text, sizeof text) != NODES_FINE)
            return error_set(err, STATUS_FAILED, "%s", text);
        if (clock_ns() < patience->next_line_ns && !patience_is_over(patience)) continue;
        nodes_list_missing(launch->nodes, missing, sizeof missing);
        if (patience_is_over(patience)) return fail_missing(launch, missing, err);
        say_waiting(launch, patience, missing);
    }
    return 0;
}

int launch_meet_nodes(Launch *launch, Error *err) {
    if (launch->options->nodes == 1) return 0;
    Patience patience = patience_begin(launch->options->start_timeout_s);
    int status = reach_node_0(launch, &patience, err);
    return status != 0 ? status : await_all(launch, &patience, err);
}

// ---- Afterwards

bool launch_gather_nodes(Launch *launch, const char *point, double patience_s) {
    uint64_t deadline_ns = clock_ns_after(patience_s);
    char text[1024];
    nodes_arrive(launch->nodes, point, launch->attempt);
    while (nodes_arrived(launch->nodes, point, launch->attempt) < launch->options->nodes) {
        if (pause_or_signal(launch)) {
            nodes_tell(launch->nodes, launch->attempt, true, "its ddprun received a signal");
            launch->cause = CAUSE_SIGNAL;
            return false;
        }
        NodesNews news = nodes_look(launch->nodes, launch->attempt, text, sizeof text);
        if (news == NODES_STOPPED) launch->no_restart = true;
        if (launch->cause == CAUSE_NONE && news != NODES_FINE) {
            output_say(launch->output, "%s", text);
            launch->cause = CAUSE_NODES;
            return false;
        }
        if (news == NODES_STOPPED || clock_ns() >= deadline_ns) return false;
    }
    return true;
}

void launch_await_nodes(Launch *launch) {
    if (!launch->nodes || launch_gather_nodes(launch, "done", launch->options->exit_timeout_s))
        return;
    if (launch->cause != CAUSE_NONE) return;
    const char *why = "not all nodes ended in time";
    output_say(launch->output, "%s", why);
    nodes_tell(launch->nodes, launch->attempt, true, why);
    launch->cause = CAUSE_NODES;
}

void launch_part_from_nodes(Launch *launch) {
    if (!launch->nodes) return;
    uint64_t deadline_ns = clock_ns_after(PARTING_S);
    int there = nodes_arrived(launch->nodes, "there", 0);
    nodes_arrive(launch->nodes, "parted", 0);
    while (launch->options->node == 0 && clock_ns() < deadline_ns &&
           nodes_arrived(launch->nodes, "parted", 0) < there)
        launch_wait(launch, clock_ns_after(0.1));
}
