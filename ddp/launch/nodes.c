/* nodes.c: see nodes.h.
 *
 * Keys below "launcher/": alive_N (counts up), end_K ("failed WHY" or "stop WHY": the first to
 * write it names the cause), POINT_K (how many nodes have arrived). Calls that fail are not
 * repeated: the store is gone then, which the next nodes_look reports as node 0's end.
 */
#include "ddp/launch/nodes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "ddp/store/store.h"

enum { LOOK_MS = 1000, SILENCE_MS = 10000, VERDICT_MAX = 1024 };

#define CALL_TIMEOUT_S 1.0 // of one call to the store: the supervision waits for it

typedef struct OtherNode {
    int64_t beats;
    uint64_t changed_ns; // when beats last changed; 0: not yet seen alive
} OtherNode;

struct Nodes {
    Store *store;
    int count, me;
    OtherNode *others; // [count]; used on node 0
    uint64_t next_look_ns;
};

static int64_t count_up(Nodes *nodes, const char *what, int number, int64_t amount, Error *err) {
    char key[64];
    int64_t value = 0;
    snprintf(key, sizeof key, "%s_%d", what, number);
    return store_add(nodes->store, key, amount, &value, err) == 0 ? value : -1;
}

Nodes *nodes_join(int nodes, int node, const char *host, int port, const char *token, Error *err) {
    Store *store = store_connect(host, port, token, CALL_TIMEOUT_S, err);
    if (!store) return NULL;
    store_set_prefix(store, "launcher");
    Nodes *joined = memory_zalloc(sizeof *joined);
    *joined = (Nodes){.store = store, .count = nodes, .me = node};
    joined->others = memory_zalloc((size_t)nodes * sizeof *joined->others);
    Error ignored = {0};
    (void)count_up(joined, "alive", node, 1, &ignored);
    return joined;
}

void nodes_leave(Nodes *nodes) {
    if (!nodes) return;
    store_close(nodes->store);
    free(nodes->others);
    free(nodes);
}

static NodesNews look_at_others(Nodes *nodes, char *text, size_t capacity, Error *err) {
    uint64_t now = clock_ns();
    for (int n = 1; n < nodes->count; n++) {
        OtherNode *other = &nodes->others[n];
        int64_t beats = count_up(nodes, "alive", n, 0, err);
        if (beats > 0 && beats != other->beats) *other = (OtherNode){beats, now};
        if (other->changed_ns && now - other->changed_ns > (uint64_t)SILENCE_MS * 1000000) {
            snprintf(text, capacity, "the ddprun of node %d has been silent for %d s", n,
                     SILENCE_MS / 1000);
            return NODES_FAILED;
        }
    }
    return NODES_FINE;
}

NodesNews nodes_look(Nodes *nodes, int attempt, char *text, size_t capacity) {
    if (!nodes || clock_ns() < nodes->next_look_ns) return NODES_FINE;
    nodes->next_look_ns = clock_ns() + (uint64_t)LOOK_MS * 1000000;
    char key[32], verdict[VERDICT_MAX];
    Error err = {0};
    snprintf(key, sizeof key, "end_%d", attempt);
    (void)count_up(nodes, "alive", nodes->me, 1, &err);
    // Comparing with "-", which is no verdict, changes nothing: this only reads.
    if (err.status == 0)
        (void)store_compare_set(nodes->store, key, "-", "-", verdict, sizeof verdict, &err);
    if (err.status != 0) {
        snprintf(text, capacity, "the ddprun of node 0 is gone: %s", err.message);
        return NODES_STOPPED;
    }
    const char *why = strchr(verdict, ' ');
    if (why) {
        snprintf(text, capacity, "%s", why + 1);
        return strncmp(verdict, "stop", 4) == 0 ? NODES_STOPPED : NODES_FAILED;
    }
    return nodes->me == 0 ? look_at_others(nodes, text, capacity, &err) : NODES_FINE;
}

void nodes_tell(Nodes *nodes, int attempt, bool stop, const char *why) {
    if (!nodes) return;
    char key[32], mine[VERDICT_MAX], stands[VERDICT_MAX];
    Error ignored = {0};
    snprintf(key, sizeof key, "end_%d", attempt);
    snprintf(mine, sizeof mine, "%s node %d: %.900s", stop ? "stop" : "failed", nodes->me, why);
    (void)store_compare_set(nodes->store, key, "", mine, stands, sizeof stands, &ignored);
}

void nodes_arrive(Nodes *nodes, const char *point, int attempt) {
    Error ignored = {0};
    if (nodes) (void)count_up(nodes, point, attempt, 1, &ignored);
}

int nodes_arrived(Nodes *nodes, const char *point, int attempt) {
    Error ignored = {0};
    return (int)count_up(nodes, point, attempt, 0, &ignored);
}

void nodes_list_missing(Nodes *nodes, char *text, size_t capacity) {
    Error ignored = {0};
    text[0] = '\0';
    for (int n = 0; n < nodes->count; n++)
        if (count_up(nodes, "alive", n, 0, &ignored) <= 0)
            format_append(text, capacity, "%s%d", *text ? ", " : "node ", n);
}
