/* elastic.c: a node's part in a job whose nodes come and go (elastic.h): joins, waits for a place
 * in each generation, leaves.
 */
#include "ddp/launch/elastic.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/machine.h"
#include "common/base/memory.h"

int elastic_beat(Launch *launch) {
    Elastic *e = launch->elastic;
    char key[32], value[NODES_TEXT_MAX];
    if (e->member < 0) return -1; // it was refused
    snprintf(key, sizeof key, "member_%d", e->member);
    int bytes = snprintf(value, sizeof value, "%lld %d %s", ++e->beats, e->ready_for, e->name);
    return store_set(launch->store, key, value, (size_t)bytes, NULL);
}

// Publishes the first generation for which this node is ready, or MEMBER_LEFT.
static void publish_ready(Launch *launch, int ready_for) {
    launch->elastic->ready_for = ready_for;
    (void)elastic_beat(launch);
}

// ---- Waiting for a place

// Takes the place that node 0 has written, if its generation is a new one and has not ended: after
// a suspension this node may see it late.
static bool take_place(Launch *launch) {
    char key[32], place[NODES_TEXT_MAX], end[NODES_TEXT_MAX];
    int generation, node, nodes, at = 0;
    snprintf(key, sizeof key, "place_%d", launch->elastic->member);
    nodes_claim(launch, key, NULL, place);
    if (sscanf(place, "%d %d %d %n", &generation, &node, &nodes, &at) != 3) return false;
    if (generation < launch->elastic->ready_for) return false;
    snprintf(key, sizeof key, "end_%d", generation);
    if (*nodes_claim(launch, key, NULL, end)) {
        publish_ready(launch, generation + 1);
        return false;
    }
    launch->attempt = generation;
    launch->node = node;
    launch->nodes = nodes;
    output_say(launch->output, "%s; this is node %d", place + at, node);
    return true;
}

// Whether node 0 has ended the job; err is filled if that is a failure of its own.
static bool is_over(Launch *launch, Error *err) {
    char over[NODES_TEXT_MAX];
    const char *text = strchr(nodes_claim(launch, "over", NULL, over), ' ');
    if (!text) return false;
    if (strncmp(over, "ok", 2) == 0)
        launch->cause = CAUSE_NONE;
    else if (launch->cause == CAUSE_NONE || launch->cause == CAUSE_NODES)
        error_set(err, STATUS_FAILED, "%s", text + 1);
    if (err->status == 0) output_say(launch->output, "%s", text + 1);
    return true;
}

// Returns 0 with a place; the number of a signal; or -1: the job is over, or err is filled.
static int await_place(Launch *launch, Error *err) {
    Patience patience = patience_begin(launch->options->start_timeout_s);
    for (;;) {
        if (launch->options->node == 0) elastic_lead(launch, &patience);
        if (take_place(launch)) return 0;
        if (is_over(launch, err)) return -1;
        launch_beat(launch);
        if (nodes_have_lost_node_0(launch))
            return error_set(err, STATUS_FAILED,
                             "the ddprun of node 0 is gone, and with it the store: the job has "
                             "ended on all nodes");
        if (launch->options->node != 0 && launch->elastic->ready_for == 0)
            nodes_say_waiting(launch, &patience, "a place in the next generation");
        if (nodes_pause(launch)) return launch->caught;
    }
}

// ---- Joining

static int take_number(Launch *launch, Error *err) {
    Elastic *e = launch->elastic;
    snprintf(e->name, sizeof e->name, "%s pid %d", launch->host, (int)getpid());
    int64_t amount = launch->options->node == 0 ? 0 : 1;
    int64_t number = nodes_count(launch, "members", 0, amount, err);
    if (number < 0) return -1;
    e->member = amount ? (int)number : 0;
    return 0;
}

int elastic_join(Launch *launch, Error *err) {
    Elastic *e = memory_zalloc(sizeof *e);
    Patience patience = patience_begin(launch->options->start_timeout_s);
    launch->elastic = e;
    e->ready_for = MEMBER_LEFT;
    e->member = -1;
    int status = nodes_reach_store(launch, &patience, err);
    if (status != 0) return status;
    if (nodes_compare_options(launch, err) != 0 || take_number(launch, err) != 0) return -1;
    publish_ready(launch, 0);
    return await_place(launch, err);
}

bool elastic_next(Launch *launch, Error *err) {
    if (launch->cause == CAUSE_NONE || launch->cause == CAUSE_SIGNAL || launch->caught ||
        launch->no_restart || launch->alive > 0)
        return false;
    publish_ready(launch, launch->attempt + 1);
    int status = await_place(launch, err);
    if (status > 0) launch->cause = CAUSE_SIGNAL;
    return status == 0;
}

// ---- Leaving

void elastic_part(Launch *launch) {
    char text[NODES_TEXT_MAX];
    uint64_t deadline_ns = clock_ns_after(NODES_PARTING_S);
    publish_ready(launch, MEMBER_LEFT);
    if (launch->options->node != 0) return;
    bool fine = launch->cause == CAUSE_NONE && !launch->caught && launch->attempt >= 0;
    nodes_claim(launch, "over",
                fine ? "ok the job has ended" : "failed the ddprun of node 0 has ended the job",
                text);
    while (clock_ns() < deadline_ns && elastic_is_attended(launch))
        launch_wait(launch, clock_ns_after(0.1));
}

void elastic_close(Launch *launch) {
    if (launch->elastic) free(launch->elastic->members);
    free(launch->elastic);
}
