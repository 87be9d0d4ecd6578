/* node_rendezvous.c: barriers of the nodes' launchers (ddp/launch/launch.h): before the first
 * attempt, between attempts, and at the end. Their keys in the store are in nodes.c.
 *
 * Every launcher waits for all nodes before it starts ranks, so that a missing node is reported as
 * such. Otherwise its absence would be reported as silence of the ranks that wait for its ranks.
 */
#include <string.h>

#include "common/base/clock.h"
#include "ddp/launch/launch.h"

#define LINE_S    10.0 // interval of the "waiting for" lines
#define PARTING_S 5.0  // time-out for the other nodes to read how the job ended

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

// Writes a "waiting for" line, every LINE_S.
static void say_waiting(Launch *launch, Patience *patience, const char *for_whom) {
    if (clock_ns() < patience->next_line_ns) return;
    patience->next_line_ns = clock_ns_after(patience->line_s);
    output_say(launch->output, "waiting for %s: %.0f s of at most %g s (--start-timeout)", for_whom,
               clock_seconds_since(patience->begin_ns), patience->most_s);
}

// Forwards output for at most 0.1 s. True: a signal was received.
static bool pause_or_signal(Launch *launch) {
    launch_wait(launch, clock_ns_after(0.1));
    launch->caught = launch_take_signal(launch);
    return launch->caught != 0;
}

// The rendezvous counts as attempt -1: a node may have completed attempt 0 before another polls
// again.
enum { WHOM_MAX = 1200, MEETING = -1 };

// Writes "node 0 of 2 (cannot connect to ...)", without the time of the single attempt.
static void name_node_0(const Launch *launch, const Error *attempt, char whom[WHOM_MAX]) {
    const char *cause = attempt->message, *colon = strstr(cause, ": ");
    if (strncmp(cause, "no store within", 15) == 0 && colon) cause = colon + 2;
    snprintf(whom, WHOM_MAX, "node 0 of %d (%s)", launch->options->nodes, cause);
}

// Fails on all nodes if this node was started with other numbers than an earlier one.
static int compare_nodes(Launch *launch, Error *err) {
    if (nodes_compare(launch->nodes, launch->options->local_ranks, err) == 0) return 0;
    nodes_publish_end(launch->nodes, MEETING, true, err->message);
    nodes_arrive(launch->nodes, "refused", 0);
    return -1;
}

// Connects to node 0's store and retries until --start-timeout: node 0 may start later.
static int reach_node_0(Launch *launch, Patience *patience, Error *err) {
    const LaunchOptions *o = launch->options;
    char whom[WHOM_MAX];
    for (;;) {
        Error attempt = {0};
        launch->nodes =
            nodes_join(o->nodes, o->node, o->master_addr, launch->port, launch->token, &attempt);
        if (launch->nodes) return compare_nodes(launch, err);
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
    nodes_publish_end(launch->nodes, MEETING, true, err->message);
    return -1;
}

static int await_all(Launch *launch, Patience *patience, Error *err) {
    char missing[200], text[1024];
    nodes_arrive(launch->nodes, "there", 0);
    while (nodes_arrived(launch->nodes, "there", 0) < launch->options->nodes) {
        if (pause_or_signal(launch)) {
            nodes_publish_end(launch->nodes, MEETING, true, "its ddprun received a signal");
            return launch->caught;
        }
        if (nodes_poll(launch->nodes, MEETING, text, sizeof text) != NODES_RUNNING)
            return error_set(err, STATUS_FAILED, "%s", text);
        if (clock_ns() < patience->next_line_ns && !patience_is_over(patience)) continue;
        nodes_list_missing(launch->nodes, missing, sizeof missing);
        if (patience_is_over(patience)) return fail_missing(launch, missing, err);
        say_waiting(launch, patience, missing);
    }
    return 0;
}

int launch_rendezvous_nodes(Launch *launch, Error *err) {
    if (launch->options->nodes == 1) return 0;
    Patience patience = patience_begin(launch->options->start_timeout_s);
    int status = reach_node_0(launch, &patience, err);
    return status != 0 ? status : await_all(launch, &patience, err);
}

// ---- Afterwards

bool launch_barrier(Launch *launch, const char *point, double patience_s) {
    uint64_t deadline_ns = clock_ns_after(patience_s);
    char text[1024];
    nodes_arrive(launch->nodes, point, launch->attempt);
    while (nodes_arrived(launch->nodes, point, launch->attempt) < launch->options->nodes) {
        if (pause_or_signal(launch)) {
            nodes_publish_end(launch->nodes, launch->attempt, true, "its ddprun received a signal");
            launch->cause = CAUSE_SIGNAL;
            return false;
        }
        NodesVerdict news = nodes_poll(launch->nodes, launch->attempt, text, sizeof text);
        if (news == NODES_STOPPED) launch->no_restart = true;
        if (launch->cause == CAUSE_NONE && news != NODES_RUNNING) {
            output_say(launch->output, "%s", text);
            launch->cause = CAUSE_NODES;
            return false;
        }
        if (news == NODES_STOPPED || clock_ns() >= deadline_ns) return false;
    }
    return true;
}

void launch_await_nodes(Launch *launch) {
    if (!launch->nodes || launch_barrier(launch, "done", launch->options->exit_timeout_s)) return;
    if (launch->cause != CAUSE_NONE) return;
    const char *why = "not all nodes ended in time";
    output_say(launch->output, "%s", why);
    nodes_publish_end(launch->nodes, launch->attempt, true, why);
    launch->cause = CAUSE_NODES;
}

void launch_drain_nodes(Launch *launch) {
    if (!launch->nodes) return;
    uint64_t deadline_ns = clock_ns_after(PARTING_S);
    int there = nodes_arrived(launch->nodes, "there", 0);
    there += nodes_arrived(launch->nodes, "refused", 0);
    nodes_arrive(launch->nodes, "parted", 0);
    while (launch->options->node == 0 && clock_ns() < deadline_ns &&
           nodes_arrived(launch->nodes, "parted", 0) < there)
        launch_wait(launch, clock_ns_after(0.1));
}
