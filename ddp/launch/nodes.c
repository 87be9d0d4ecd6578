/* nodes.c: how the launchers of a job's nodes coordinate, through the store (ddp/launch/launch.h).
 *
 * Each node has one ddprun; node 0's serves the store. Each increments a key of its own once a
 * second: by these node 0 detects a launcher that died, and the others detect node 0's death by the
 * store. The first node that ends an attempt publishes the reason under one key, and all end it.
 *
 * Keys, all behind "launcher/":
 *
 *   alive_N         incremented by node N once a second
 *   size, node_N    compare_nodes
 *   end_K           "failed WHY" or "stop WHY" of attempt K; the first writer names the cause
 *   POINT_K         barrier POINT of attempt K: number of nodes that arrived
 *
 * Failed calls are not retried: the store is gone then, and the next poll reports node 0's end.
 * With one node there is no connection, and nothing is polled or published.
 *
 * Every launcher waits for all nodes before it starts ranks, so that a missing node is reported as
 * such. Otherwise its absence would be reported as silence of the ranks that wait for its ranks.
 */
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/machine.h"
#include "common/base/memory.h"
#include "ddp/launch/launch.h"

// The rendezvous counts as attempt -1: a node may have completed attempt 0 before another polls
// again.
enum { SILENCE_S = 10, TEXT_MAX = 1024, MEETING = -1 };

#define POLL_S         1.0
#define CALL_TIMEOUT_S 1.0  // of one call to the store, during which the supervision blocks
#define LINE_S         10.0 // interval of the "waiting for" lines
#define PARTING_S      5.0  // time-out for the other nodes to read how the job ended

// ---- Keys

// Adds to the key what_number. Returns the sum; -1 with err filled if the store does not answer.
static int64_t count_up(Launch *launch, const char *what, int number, int64_t amount, Error *err) {
    char key[64];
    int64_t value = 0;
    snprintf(key, sizeof key, "%s_%d", what, number);
    return store_add(launch->store, key, amount, &value, err) == 0 ? value : -1;
}

// Sets the key to `mine` unless it has a value. Returns its value, or "" if the store does not
// answer.
static const char *claim(Launch *launch, const char *key, const char *mine, char stands[TEXT_MAX]) {
    if (store_compare_set(launch->store, key, "", mine, stands, TEXT_MAX, NULL) != 0)
        stands[0] = '\0';
    return stands;
}

void launch_publish_end(Launch *launch, bool stop, const char *why) {
    if (!launch->store) return;
    char key[32], mine[TEXT_MAX], stands[TEXT_MAX];
    snprintf(key, sizeof key, "end_%d", launch->attempt);
    snprintf(mine, sizeof mine, "%s node %d: %.900s", stop ? "stop" : "failed",
             launch->options->node, why);
    (void)claim(launch, key, mine, stands);
}

// ---- The other nodes' state

typedef enum Verdict {
    NODES_RUN,
    NODES_FAILED,  // another node's rank failed, or its launcher died: text says why
    NODES_STOPPED, // another launcher received a signal: no restart
} Verdict;

static Verdict check_others(Launch *launch, char text[TEXT_MAX]) {
    for (int n = 1; n < launch->options->nodes; n++) {
        OtherNode *other = &launch->others[n];
        int64_t beats = count_up(launch, "alive", n, 0, NULL);
        if (beats > 0 && beats != other->beats) *other = (OtherNode){beats, clock_ns()};
        if (other->changed_ns && clock_seconds_since(other->changed_ns) > SILENCE_S) {
            snprintf(text, TEXT_MAX, "the ddprun of node %d has been silent for %d s", n,
                     SILENCE_S);
            return NODES_FAILED;
        }
    }
    return NODES_RUN;
}

// Increments this node's key and checks the others, at most once a second.
static Verdict poll_nodes(Launch *launch, char text[TEXT_MAX]) {
    if (clock_ns() < launch->next_poll_ns) return NODES_RUN;
    launch->next_poll_ns = clock_ns_after(POLL_S);
    char key[32], verdict[TEXT_MAX];
    Error err = {0};
    snprintf(key, sizeof key, "end_%d", launch->attempt);
    // The second call only reads: the key never equals "-".
    if (count_up(launch, "alive", launch->options->node, 1, &err) < 0 ||
        store_compare_set(launch->store, key, "-", "-", verdict, sizeof verdict, &err) != 0) {
        snprintf(text, TEXT_MAX, "the ddprun of node 0 is gone: %.900s", err.message);
        return NODES_STOPPED;
    }
    const char *why = strchr(verdict, ' ');
    if (!why) return launch->options->node == 0 ? check_others(launch, text) : NODES_RUN;
    snprintf(text, TEXT_MAX, "%s", why + 1);
    return strncmp(verdict, "stop", 4) == 0 ? NODES_STOPPED : NODES_FAILED;
}

void launch_check_nodes(Launch *launch) {
    char text[TEXT_MAX];
    Verdict news = launch->store ? poll_nodes(launch, text) : NODES_RUN;
    if (news == NODES_RUN) return;
    output_say(launch->output, "%s", text);
    launch_publish_end(launch, news == NODES_STOPPED, text);
    if (news == NODES_STOPPED) launch->no_restart = true;
    launch_end_ranks(launch, CAUSE_NODES, SIGTERM);
}

// ---- Waiting

typedef struct Patience {
    double most_s;
    uint64_t begin_ns, next_line_ns;
} Patience;

static Patience patience_begin(double most_s) {
    return (Patience){most_s, clock_ns(),
                      clock_ns_after(most_s / 4 < LINE_S ? most_s / 4 : LINE_S)};
}

static bool patience_is_over(const Patience *patience) {
    return clock_seconds_since(patience->begin_ns) >= patience->most_s;
}

// Writes a "waiting for" line, every LINE_S.
static void say_waiting(Launch *launch, Patience *patience, const char *for_whom) {
    if (clock_ns() < patience->next_line_ns) return;
    patience->next_line_ns = patience_begin(patience->most_s).next_line_ns;
    output_say(launch->output, "waiting for %s: %.0f s of at most %g s (--start-timeout)", for_whom,
               clock_seconds_since(patience->begin_ns), patience->most_s);
}

// Forwards output for at most 0.1 s. True: a signal was received.
static bool pause_or_signal(Launch *launch) {
    launch_wait(launch, clock_ns_after(0.1));
    launch->caught = launch_take_signal(launch);
    return launch->caught != 0;
}

// Lists the nodes that have not joined: "node 1, 3".
static void list_missing(Launch *launch, char *text, size_t capacity) {
    text[0] = '\0';
    for (int n = 0; n < launch->options->nodes; n++)
        if (count_up(launch, "alive", n, 0, NULL) <= 0)
            format_append(text, capacity, "%s%d", *text ? ", " : "node ", n);
}

// Waits until all nodes are at the point of this attempt. False: time-out; another node stopped
// after the attempt failed; or, with launch->cause set, a signal, or another node ended the
// attempt: then err says why.
static bool await_all(Launch *launch, const char *point, Patience *patience, Error *err) {
    char text[TEXT_MAX];
    (void)count_up(launch, point, launch->attempt, 1, NULL);
    while (count_up(launch, point, launch->attempt, 0, NULL) < launch->options->nodes) {
        if (pause_or_signal(launch)) {
            launch_publish_end(launch, true, "its ddprun received a signal");
            launch->cause = CAUSE_SIGNAL;
            return false;
        }
        Verdict news = poll_nodes(launch, text);
        if (news == NODES_STOPPED) launch->no_restart = true;
        if (launch->cause == CAUSE_NONE && news != NODES_RUN) {
            launch->cause = CAUSE_NODES;
            error_set(err, STATUS_FAILED, "%s", text);
            return false;
        }
        if (news == NODES_STOPPED || patience_is_over(patience)) return false;
        if (launch->attempt != MEETING || clock_ns() < patience->next_line_ns) continue;
        list_missing(launch, text, sizeof text);
        say_waiting(launch, patience, text);
    }
    return true;
}

// ---- At the start

// Fails on all nodes if --nnodes, --nproc-per-node or --node-rank contradicts a node that called
// before; err names both nodes' values.
static int compare_nodes(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    char key[32], mine[120], stands[TEXT_MAX], host[72];
    int node, count, ranks;
    snprintf(mine, sizeof mine, "%d %d %d", o->node, o->nodes, o->local_ranks);
    if (sscanf(claim(launch, "size", mine, stands), "%d %d %d", &node, &count, &ranks) == 3 &&
        (count != o->nodes || ranks != o->local_ranks))
        return error_set(err, STATUS_USAGE,
                         "--nnodes %d --nproc-per-node %d at node %d and --nnodes %d "
                         "--nproc-per-node %d at node %d -- start ddprun with the same numbers on "
                         "all nodes",
                         count, ranks, node, o->nodes, o->local_ranks, o->node);
    machine_name(host, sizeof host);
    snprintf(mine, sizeof mine, "%s, pid %d", host, (int)getpid());
    snprintf(key, sizeof key, "node_%d", o->node);
    if (*claim(launch, key, mine, stands) == '\0' || strcmp(stands, mine) == 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "two nodes have --node-rank %d: %s, and %s -- each needs one of its own",
                     o->node, stands, mine);
}

// Connects to node 0's store and retries until --start-timeout: node 0 may start later. Returns 0;
// the number of a signal received meanwhile; or -1 with err filled.
static int reach_node_0(Launch *launch, Patience *patience, Error *err) {
    const LaunchOptions *o = launch->options;
    for (;;) {
        Error attempt = {0};
        launch->store =
            store_connect(o->master_addr, launch->port, launch->token, CALL_TIMEOUT_S, &attempt);
        if (launch->store) break;
        if (attempt.status != STATUS_FAILED)
            return error_set(err, attempt.status, "node %d: %s", o->node, attempt.message);
        char whom[TEXT_MAX + 100]; // the error without the time of the single attempt
        const char *cause = attempt.message, *colon = strstr(cause, ": ");
        if (strncmp(cause, "no store within", 15) == 0 && colon) cause = colon + 2;
        snprintf(whom, sizeof whom, "node 0 of %d (%s)", o->nodes, cause);
        if (patience_is_over(patience))
            return error_set(err, STATUS_FAILED, "node %d could not reach %s within %g s", o->node,
                             whom, patience->most_s);
        say_waiting(launch, patience, whom);
        if (pause_or_signal(launch)) return launch->caught;
    }
    store_set_prefix(launch->store, "launcher");
    (void)count_up(launch, "alive", o->node, 1, NULL);
    return 0;
}

int launch_rendezvous_nodes(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    launch->attempt = MEETING;
    if (o->nodes == 1) return 0;
    launch->others = memory_zalloc((size_t)o->nodes * sizeof *launch->others);
    Patience patience = patience_begin(o->start_timeout_s);
    int status = reach_node_0(launch, &patience, err);
    if (status != 0) return status;
    if (compare_nodes(launch, err) != 0) {
        launch_publish_end(launch, true, err->message);
        (void)count_up(launch, "refused", MEETING, 1, NULL);
        return -1;
    }
    if (await_all(launch, "there", &patience, err)) return 0;
    if (launch->caught) return launch->caught;
    if (launch->cause == CAUSE_NODES) return -1;
    char missing[200];
    list_missing(launch, missing, sizeof missing);
    error_set(
        err, STATUS_FAILED,
        "%s of %d did not come within %g s: start ddprun there with --nnodes %d --node-rank N "
        "--master-addr %s --master-port %d and the same DDPRUN_TOKEN",
        missing, o->nodes, o->start_timeout_s, o->nodes, o->master_addr, launch->port);
    launch_publish_end(launch, true, err->message);
    return -1;
}

// ---- Afterwards

bool launch_end_together(Launch *launch) {
    Patience patience = patience_begin(launch->options->grace_s + 60);
    return !launch->store || await_all(launch, "ended", &patience, NULL);
}

void launch_await_nodes(Launch *launch) {
    Error why = {0};
    Patience patience = patience_begin(launch->options->exit_timeout_s);
    if (!launch->store || await_all(launch, "done", &patience, &why)) return;
    if (launch->cause == CAUSE_SIGNAL) return;
    if (launch->cause == CAUSE_NONE) {
        error_set(&why, STATUS_FAILED, "not all nodes ended in time");
        launch_publish_end(launch, true, why.message);
    }
    output_say(launch->output, "%s", why.message);
    launch->cause = CAUSE_NODES;
}

void launch_drain_nodes(Launch *launch) {
    if (!launch->store) return;
    uint64_t deadline_ns = clock_ns_after(PARTING_S);
    int64_t there = count_up(launch, "there", MEETING, 0, NULL);
    there += count_up(launch, "refused", MEETING, 0, NULL);
    (void)count_up(launch, "parted", MEETING, 1, NULL);
    while (launch->options->node == 0 && clock_ns() < deadline_ns &&
           count_up(launch, "parted", MEETING, 0, NULL) < there)
        launch_wait(launch, clock_ns_after(0.1));
}
