/* elastic_lead.c: node 0 decides which nodes form which generation (elastic.h). */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "ddp/launch/elastic.h"

#define SUSPENDED_S 5.0 // between two refreshes: node 0 itself was suspended

// ---- The members

static bool is_lost(const Launch *launch, const ElasticMember *m) {
    return clock_seconds_since(m->heard_ns) > nodes_silence_s(launch);
}

static bool is_there(const Launch *launch, const ElasticMember *m) {
    return m->ready_for != MEMBER_LEFT && !is_lost(launch, m);
}

// It has ended the last generation that included it, if any, and waits for the next.
static bool is_ready(const Launch *launch, const ElasticMember *m) {
    return is_there(launch, m) && m->ready_for > m->generation;
}

static bool is_included(const Launch *launch, const ElasticMember *m) {
    return launch->attempt >= 0 && m->generation == launch->attempt;
}

// It was lost, or left before all nodes had ended.
static bool is_gone(Launch *launch, const ElasticMember *m) {
    if (m->ready_for != MEMBER_LEFT) return is_lost(launch, m);
    return nodes_count(launch, "done", launch->attempt, 0, NULL) < launch->nodes;
}

static void refresh_member(Launch *launch, int number) {
    ElasticMember *m = &launch->elastic->members[number];
    char key[32], value[NODES_TEXT_MAX];
    long long beats;
    int ready_for, at = 0;
    if (m->ready_for == MEMBER_LEFT && m->beats > 0) return;
    snprintf(key, sizeof key, "member_%d", number);
    nodes_claim(launch, key, NULL, value);
    if (sscanf(value, "%lld %d %n", &beats, &ready_for, &at) != 2) return;
    if (beats != m->beats) m->heard_ns = clock_ns();
    m->beats = beats;
    m->ready_for = ready_for;
    snprintf(m->name, sizeof m->name, "%.*s", MEMBER_NAME_MAX, value + at);
}

static void refresh(Launch *launch) {
    Elastic *e = launch->elastic;
    const int64_t joined = nodes_count(launch, "members", 0, 0, NULL);
    bool was_suspended = e->refreshed_ns && clock_seconds_since(e->refreshed_ns) > SUSPENDED_S;
    if (joined >= e->count) {
        e->members = memory_grow(e->members, (size_t)joined + 1, sizeof *e->members);
        while (e->count <= joined)
            e->members[e->count++] =
                (ElasticMember){.heard_ns = clock_ns(), .ready_for = MEMBER_LEFT, .generation = -1};
    }
    for (int m = 0; m < e->count; m++) {
        if (was_suspended) e->members[m].heard_ns = clock_ns();
        refresh_member(launch, m);
    }
    e->refreshed_ns = clock_ns();
}

LaunchEnd elastic_check(Launch *launch, char text[NODES_TEXT_MAX]) {
    int included = 0;
    const ElasticMember *asks = NULL;
    refresh(launch);
    for (int i = 0; i < launch->elastic->count; i++) {
        const ElasticMember *m = &launch->elastic->members[i];
        if (is_included(launch, m) && is_there(launch, m)) included++;
        if (!is_included(launch, m) && is_ready(launch, m)) asks = m;
        if (!is_included(launch, m) || !is_gone(launch, m)) continue;
        if (m->ready_for == MEMBER_LEFT)
            snprintf(text, NODES_TEXT_MAX, "%s has left", m->name);
        else
            snprintf(text, NODES_TEXT_MAX, "the ddprun on %s has been silent for %g s", m->name,
                     nodes_silence_s(launch));
        return END_CHANGED;
    }
    // A node that asks when the ranks have begun to end would restart a finished job.
    bool ends = launch->alive < launch->options->local_ranks || launch->first_good_end_ns;
    if (!asks || ends || included >= launch->options->nodes) return END_NONE;
    snprintf(text, NODES_TEXT_MAX, "%s asks to join", asks->name);
    return END_CHANGED;
}

bool elastic_is_attended(Launch *launch) {
    refresh(launch);
    for (int i = 1; i < launch->elastic->count; i++)
        if (is_there(launch, &launch->elastic->members[i])) return true;
    return false;
}

// ---- The next generation

// Counts of nodes while the next generation forms.
typedef struct Muster {
    int ready;   // nodes, at most MAX
    int missing; // of the previous generation: neither ready nor gone
    int gone;    // of the previous generation: left or lost
    bool failed; // a rank failed
} Muster;

static Muster muster(Launch *launch) {
    Muster all = {0};
    char key[32], end[NODES_TEXT_MAX];
    snprintf(key, sizeof key, "end_%d", launch->attempt);
    all.failed = strncmp(nodes_claim(launch, key, NULL, end), "failed", 6) == 0;
    for (int i = 0; i < launch->elastic->count; i++) {
        const ElasticMember *m = &launch->elastic->members[i];
        bool ready = is_ready(launch, m);
        if (ready && all.ready < launch->options->nodes) all.ready++;
        if (!is_included(launch, m) || ready) continue;
        if (is_there(launch, m))
            all.missing++;
        else
            all.gone++;
    }
    return all;
}

static void append_name(char *list, const char *title, const char *name, const char *why) {
    format_append(list, NODES_TEXT_MAX / 3, "%s%s%s", *list ? ", " : title, name, why);
}

static void place(Launch *launch, ElasticMember *m, int generation, int node, int nodes,
                  const char *text) {
    char key[32], value[NODES_TEXT_MAX];
    snprintf(key, sizeof key, "place_%d", (int)(m - launch->elastic->members));
    int bytes = snprintf(value, sizeof value, "%d %d %d %.900s", generation, node, nodes, text);
    (void)store_set(launch->store, key, value, (size_t)bytes, NULL);
    m->generation = generation;
}

// Nodes of the previous generation keep their order; new nodes follow in order of arrival.
static void form_generation(Launch *launch, int nodes) {
    Elastic *e = launch->elastic;
    const int generation = launch->attempt + 1;
    ElasticMember **chosen = memory_zalloc((size_t)nodes * sizeof *chosen);
    char text[NODES_TEXT_MAX], left[NODES_TEXT_MAX / 3] = "", came[NODES_TEXT_MAX / 3] = "";
    int count = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < e->count; i++) {
            ElasticMember *m = &e->members[i];
            bool was_in = is_included(launch, m), ready = is_ready(launch, m);
            if (was_in != (pass == 0)) continue;
            if (was_in && !ready)
                append_name(left, "; left: ", m->name, is_lost(launch, m) ? " (lost)" : "");
            if (!ready || count == nodes) continue;
            if (!was_in) append_name(came, "; came: ", m->name, "");
            chosen[count++] = m;
        }
    const int ranks = nodes * launch->options->local_ranks;
    snprintf(text, sizeof text, "generation %d: %d node%s, %d rank%s%s%s", generation, nodes,
             format_s((size_t)nodes), ranks, format_s((size_t)ranks), left, came);
    for (int n = 0; n < count; n++) place(launch, chosen[n], generation, n, nodes, text);
    free(chosen);
    e->last_call_ns = 0;
}

static void end_job(Launch *launch, const char *why) {
    char mine[NODES_TEXT_MAX], stands[NODES_TEXT_MAX];
    snprintf(mine, sizeof mine, "failed %.900s", why);
    nodes_claim(launch, "over", mine, stands);
}

// Fewer than MIN nodes are ready.
static void await_more(Launch *launch, Patience *patience, int ready) {
    const LaunchOptions *o = launch->options;
    char text[300];
    launch->elastic->last_call_ns = 0;
    if (patience_is_over(patience)) {
        snprintf(text, sizeof text,
                 "only %d node%s ready, --nnodes %d:%d needs %d, and no other came within %g s: "
                 "start ddprun on another node with --node-rank 1, --master-port %d and the same "
                 "options "
                 "and DDPRUN_TOKEN",
                 ready, ready == 1 ? " is" : "s are", o->min_nodes, o->nodes, o->min_nodes,
                 o->start_timeout_s, launch->port);
        end_job(launch, text);
        return;
    }
    snprintf(text, sizeof text, "%d more node%s (%d of at least %d ready)", o->min_nodes - ready,
             format_s((size_t)(o->min_nodes - ready)), ready, o->min_nodes);
    nodes_say_waiting(launch, patience, text);
}

void elastic_lead(Launch *launch, Patience *patience) {
    const LaunchOptions *o = launch->options;
    Elastic *e = launch->elastic;
    refresh(launch);
    Muster all = muster(launch);
    if (all.missing > 0) return;
    const bool restart = all.failed && all.gone == 0;
    if (restart && e->restarts >= o->max_restarts) {
        char text[100];
        snprintf(text, sizeof text, "a rank failed, and no restart of --max-restarts %d is left",
                 o->max_restarts);
        end_job(launch, text);
        return;
    }
    if (all.ready < o->min_nodes) {
        await_more(launch, patience, all.ready);
        return;
    }
    if (!e->last_call_ns) e->last_call_ns = clock_ns_after(o->last_call_s);
    if (all.ready < o->nodes && clock_ns() < e->last_call_ns) return;
    if (restart) {
        e->restarts++;
        output_say(launch->output, "restarting all ranks (restart %d of %d)", e->restarts,
                   o->max_restarts);
    }
    form_generation(launch, all.ready);
}
