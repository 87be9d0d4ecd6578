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
 *   end_K           "failed WHY", "changed WHY" or "stop WHY" of attempt K, of the first writer
 *   POINT_K         barrier POINT of attempt K: number of nodes that arrived
 *
 * Failed calls are not retried: the store is gone then, and the next poll reports node 0's end.
 * With one node there is no connection, and nothing is polled or published. With nodes that come
 * and go (elastic.h) the attempt is the generation; end_K, done_K and size are the same, and
 * elastic.h has keys in place of the others.
 *
 * Every launcher waits for all nodes before it starts ranks, so that a missing node is reported as
 * such. Otherwise its absence would be reported as silence of the ranks that wait for its ranks.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/machine.h"
#include "common/base/memory.h"
#include "ddp/launch/elastic.h"

// The rendezvous is attempt -1: a node may have completed attempt 0 before another polls again.
enum { MEETING = -1 };

#define POLL_S         1.0
#define CALL_TIMEOUT_S 1.0 // of one call to the store, during which the supervision blocks
#define SILENCE_S      10.0
#define SILENCE_MIN_S  3.0  // several polls
#define LINE_S         10.0 // interval of the "waiting for" lines

// ---- Keys

int64_t nodes_count(Launch *launch, const char *what, int number, int64_t amount, Error *err) {
    char key[64];
    int64_t value = 0;
    snprintf(key, sizeof key, "%s_%d", what, number);
    return store_add(launch->store, key, amount, &value, err) == 0 ? value : -1;
}

// The pair "-" reads only: no key's value equals it.
static int read_or_claim(Launch *launch, const char *key, const char *mine,
                         char stands[NODES_TEXT_MAX], Error *err) {
    stands[0] = '\0';
    return store_compare_set(launch->store, key, mine ? "" : "-", mine ? mine : "-", stands,
                             NODES_TEXT_MAX, err);
}

const char *nodes_claim(Launch *launch, const char *key, const char *mine,
                        char stands[NODES_TEXT_MAX]) {
    (void)read_or_claim(launch, key, mine, stands, NULL);
    return stands;
}

static const char *const END_WORDS[] = {"", "failed", "changed", "stop"};

// With elastic nodes a stop of node 0 ends the job; another node's stop removes only that node.
void launch_publish_end(Launch *launch, LaunchEnd end, const char *why) {
    if (!launch->store) return;
    if (end == END_STOPPED && launch->elastic && launch->options->node != 0) end = END_CHANGED;
    char key[32], mine[NODES_TEXT_MAX], stands[NODES_TEXT_MAX];
    snprintf(key, sizeof key, "end_%d", launch->attempt);
    snprintf(mine, sizeof mine, "%s node %d: %.900s", END_WORDS[end], launch->node, why);
    (void)nodes_claim(launch, key, mine, stands);
}

// ---- The other nodes' state

double nodes_silence_s(const Launch *launch) {
    double s = launch->options->heartbeat_s;
    return s > 0 ? fmin(SILENCE_S, fmax(SILENCE_MIN_S, s)) : SILENCE_S;
}

static LaunchEnd check_others(Launch *launch, char text[NODES_TEXT_MAX]) {
    for (int n = 1; n < launch->options->nodes; n++) {
        OtherNode *other = &launch->others[n];
        int64_t beats = nodes_count(launch, "alive", n, 0, NULL);
        if (beats > 0 && beats != other->beats) *other = (OtherNode){beats, clock_ns()};
        if (other->changed_ns && clock_seconds_since(other->changed_ns) > nodes_silence_s(launch)) {
            snprintf(text, NODES_TEXT_MAX, "the ddprun of node %d has been silent for %g s", n,
                     nodes_silence_s(launch));
            return END_FAILED;
        }
    }
    return END_NONE;
}

void launch_beat(Launch *launch) {
    if (!launch->store || clock_ns() < launch->next_beat_ns) return;
    launch->next_beat_ns = clock_ns_after(POLL_S);
    bool answered = launch->elastic
                        ? elastic_beat(launch) == 0
                        : nodes_count(launch, "alive", launch->options->node, 1, NULL) >= 0;
    if (answered) launch->answered_ns = clock_ns();
}

bool nodes_have_lost_node_0(const Launch *launch) {
    return !store_is_connected(launch->store) ||
           clock_seconds_since(launch->answered_ns) > nodes_silence_s(launch);
}

LaunchEnd nodes_poll(Launch *launch, char text[NODES_TEXT_MAX]) {
    if (clock_ns() < launch->next_beat_ns) return END_NONE;
    launch_beat(launch);
    char key[32], end[NODES_TEXT_MAX];
    Error err = {0};
    snprintf(key, sizeof key, "end_%d", launch->attempt);
    if (read_or_claim(launch, key, NULL, end, &err) != 0) {
        if (!nodes_have_lost_node_0(launch)) return END_NONE;
        snprintf(text, NODES_TEXT_MAX, "the ddprun of node 0 is gone: %.900s", err.message);
        return END_STOPPED;
    }
    const char *why = strchr(end, ' ');
    if (!why && launch->options->node != 0) return END_NONE;
    if (!why) return launch->elastic ? elastic_check(launch, text) : check_others(launch, text);
    snprintf(text, NODES_TEXT_MAX, "%s", why + 1);
    for (LaunchEnd e = END_FAILED; e < END_STOPPED; e++)
        if (strncmp(end, END_WORDS[e], strlen(END_WORDS[e])) == 0) return e;
    return END_STOPPED;
}

void launch_check_nodes(Launch *launch) {
    char text[NODES_TEXT_MAX];
    LaunchEnd news = launch->store ? nodes_poll(launch, text) : END_NONE;
    if (news == END_NONE) return;
    output_say(launch->output, "%s", text);
    launch_publish_end(launch, news, text);
    if (news == END_STOPPED) launch->no_restart = true;
    launch_end_ranks(launch, CAUSE_NODES, SIGTERM);
}

// ---- Waiting

Patience patience_begin(double most_s) {
    const uint64_t now = clock_ns();
    return (Patience){most_s, now, now + (uint64_t)(fmin(most_s / 4, LINE_S) * 1e9)};
}

bool patience_is_over(const Patience *patience) {
    return clock_seconds_since(patience->begin_ns) >= patience->most_s;
}

void nodes_say_waiting(Launch *launch, Patience *patience, const char *for_whom) {
    if (clock_ns() < patience->next_line_ns) return;
    patience->next_line_ns = patience_begin(patience->most_s).next_line_ns;
    output_say(launch->output, "waiting for %s: %.0f s of at most %g s (--start-timeout)", for_whom,
               clock_seconds_since(patience->begin_ns), patience->most_s);
}

bool nodes_pause(Launch *launch) {
    launch_wait(launch, clock_ns_after(0.1));
    launch->caught = launch_take_signal(launch);
    return launch->caught != 0;
}

// Writes the nodes that have not joined: "node 1, 3".
static void list_missing(Launch *launch, char *text, size_t capacity) {
    text[0] = '\0';
    for (int n = 0; n < launch->options->nodes; n++)
        if (nodes_count(launch, "alive", n, 0, NULL) <= 0)
            format_append(text, capacity, "%s%d", *text ? ", " : "node ", n);
}

// Waits until all nodes are at the point of this attempt. False: time-out; another node stopped
// after the attempt failed; or, with launch->cause set, a signal, or another node ended the
// attempt: then err says why.
static bool await_all(Launch *launch, const char *point, Patience *patience, Error *err) {
    char text[NODES_TEXT_MAX];
    (void)nodes_count(launch, point, launch->attempt, 1, NULL);
    while (nodes_count(launch, point, launch->attempt, 0, NULL) < launch->nodes) {
        if (nodes_pause(launch)) {
            launch_publish_end(launch, END_STOPPED, "its ddprun received a signal");
            launch->cause = CAUSE_SIGNAL;
            return false;
        }
        LaunchEnd news = nodes_poll(launch, text);
        if (news == END_STOPPED) launch->no_restart = true;
        if (launch->cause == CAUSE_NONE && news != END_NONE) {
            launch->cause = CAUSE_NODES;
            launch_publish_end(launch, news, text);
            error_set(err, STATUS_FAILED, "%s", text);
            return false;
        }
        if (news == END_STOPPED || patience_is_over(patience)) return false;
        if (launch->attempt != MEETING || clock_ns() < patience->next_line_ns) continue;
        list_missing(launch, text, sizeof text);
        nodes_say_waiting(launch, patience, text);
    }
    return true;
}

// ---- At the start

int nodes_compare_options(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    char mine[120], count[32], stands[NODES_TEXT_MAX];
    snprintf(count, sizeof count, launch->elastic ? "%d:%d" : "%d", o->min_nodes, o->nodes);
    int alike =
        snprintf(mine, sizeof mine, "--nnodes %s --nproc-per-node %d at ", count, o->local_ranks);
    format_append(mine, sizeof mine, "node %d", o->node);
    nodes_claim(launch, "size", mine, stands);
    if (!*stands || strncmp(stands, mine, (size_t)alike) == 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "%s and %s -- start ddprun with the same numbers on all nodes", stands, mine);
}

// Fails on all nodes if --nnodes, --nproc-per-node or --node-rank contradicts a node that called
// before.
static int compare_nodes(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    char key[32], mine[120], stands[NODES_TEXT_MAX], host[72];
    if (nodes_compare_options(launch, err) != 0) return -1;
    machine_name(host, sizeof host);
    snprintf(mine, sizeof mine, "%s, pid %d", host, (int)getpid());
    snprintf(key, sizeof key, "node_%d", o->node);
    if (*nodes_claim(launch, key, mine, stands) == '\0' || strcmp(stands, mine) == 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "two nodes have --node-rank %d: %s, and %s -- each needs one of its own",
                     o->node, stands, mine);
}

int nodes_reach_store(Launch *launch, Patience *patience, Error *err) {
    const LaunchOptions *o = launch->options;
    for (;;) {
        Error attempt = {0};
        launch->store =
            store_connect(o->master_addr, launch->port, launch->token, CALL_TIMEOUT_S, &attempt);
        if (launch->store) break;
        if (attempt.status != STATUS_FAILED)
            return error_set(err, attempt.status, "node %d: %s", o->node, attempt.message);
        char whom[NODES_TEXT_MAX + 100]; // the error without the time of the single attempt
        const char *cause = attempt.message, *colon = strstr(cause, ": ");
        if (strncmp(cause, "no store within", 15) == 0 && colon) cause = colon + 2;
        snprintf(whom, sizeof whom, "node 0 of %d (%s)", o->nodes, cause);
        if (patience_is_over(patience))
            return error_set(err, STATUS_FAILED, "node %d could not reach %s within %g s", o->node,
                             whom, patience->most_s);
        nodes_say_waiting(launch, patience, whom);
        if (nodes_pause(launch)) return launch->caught;
    }
    store_set_prefix(launch->store, "launcher");
    launch->answered_ns = clock_ns();
    return 0;
}

static int meet_all(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    launch->others = memory_zalloc((size_t)o->nodes * sizeof *launch->others);
    Patience patience = patience_begin(o->start_timeout_s);
    int status = nodes_reach_store(launch, &patience, err);
    if (status != 0) return status;
    (void)nodes_count(launch, "alive", o->node, 1, NULL);
    if (compare_nodes(launch, err) != 0) {
        launch_publish_end(launch, END_STOPPED, err->message);
        (void)nodes_count(launch, "refused", MEETING, 1, NULL);
        return -1;
    }
    if (await_all(launch, "there", &patience, err)) return 0;
    if (launch->cause != CAUSE_NONE) return launch->caught ? launch->caught : -1;
    char missing[200];
    list_missing(launch, missing, sizeof missing);
    error_set(
        err, STATUS_FAILED,
        "%s of %d did not come within %g s: start ddprun there with --nnodes %d --node-rank N "
        "--master-addr %s --master-port %d and the same DDPRUN_TOKEN",
        missing, o->nodes, o->start_timeout_s, o->nodes, o->master_addr, launch->port);
    launch_publish_end(launch, END_STOPPED, err->message);
    return -1;
}

int launch_rendezvous_nodes(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    launch->attempt = MEETING;
    launch->node = o->node;
    launch->nodes = o->nodes;
    if (o->min_nodes < o->nodes) return elastic_join(launch, err);
    int status = o->nodes > 1 ? meet_all(launch, err) : 0;
    if (status == 0) launch->attempt = 0;
    return status;
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
        launch_publish_end(launch, END_STOPPED, why.message);
    }
    output_say(launch->output, "%s", why.message);
    launch->cause = CAUSE_NODES;
}

void launch_drain_nodes(Launch *launch) {
    if (!launch->store) return;
    if (launch->elastic) {
        elastic_part(launch);
        return;
    }
    uint64_t deadline_ns = clock_ns_after(NODES_PARTING_S);
    int64_t there = nodes_count(launch, "there", MEETING, 0, NULL);
    there += nodes_count(launch, "refused", MEETING, 0, NULL);
    (void)nodes_count(launch, "parted", MEETING, 1, NULL);
    while (launch->options->node == 0 && clock_ns() < deadline_ns &&
           nodes_count(launch, "parted", MEETING, 0, NULL) < there)
        launch_wait(launch, clock_ns_after(0.1));
}
