/* nodes.c: see nodes.h.
 *
 * Keys, all behind "launcher/":
 *
 *   alive_N         incremented by node N once a second
 *   size, node_N    nodes_compare
 *   end_K           "failed WHY" or "stop WHY" of attempt K; the first writer names the cause
 *   POINT_K         barrier POINT of attempt K: number of nodes that arrived
 *
 * Failed calls are not retried: the store is gone then, and the next nodes_poll reports node 0's
 * end.
 */
#include "ddp/launch/nodes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/machine.h"
#include "common/base/memory.h"
#include "ddp/store/store.h"

enum { POLL_MS = 1000, SILENCE_MS = 10000, VERDICT_MAX = 1024, CLAIM_MAX = 120 };

#define CALL_TIMEOUT_S 1.0 // of one call to the store, during which the supervision blocks

typedef struct OtherNode {
    int64_t beats;
    uint64_t changed_ns; // when beats last changed; 0: never
} OtherNode;

struct Nodes {
    Store *store;
    int count, me;
    OtherNode *others; // [count]; used on node 0
    uint64_t next_poll_ns;
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

// Sets the key to `mine` unless it has a value. Returns its value, or "" if the store does not
// answer, which the next nodes_poll reports.
static const char *claim(Nodes *nodes, const char *key, const char *mine, char stands[CLAIM_MAX]) {
    Error ignored = {0};
    if (store_compare_set(nodes->store, key, "", mine, stands, CLAIM_MAX, &ignored) != 0)
        stands[0] = '\0';
    return stands;
}

int nodes_compare(Nodes *nodes, int local_ranks, Error *err) {
    char key[32], mine[CLAIM_MAX], stands[CLAIM_MAX], host[72];
    int node, count, ranks;
    snprintf(mine, sizeof mine, "%d %d %d", nodes->me, nodes->count, local_ranks);
    if (sscanf(claim(nodes, "size", mine, stands), "%d %d %d", &node, &count, &ranks) == 3 &&
        (count != nodes->count || ranks != local_ranks))
        return error_set(err, STATUS_USAGE,
                         "--nnodes %d --nproc-per-node %d at node %d and --nnodes %d "
                         "--nproc-per-node %d at node %d -- start ddprun with the same numbers on "
                         "all nodes",
                         count, ranks, node, nodes->count, local_ranks, nodes->me);
    machine_name(host, sizeof host);
    snprintf(mine, sizeof mine, "%s, pid %d", host, (int)getpid());
    snprintf(key, sizeof key, "node_%d", nodes->me);
    if (*claim(nodes, key, mine, stands) == '\0' || strcmp(stands, mine) == 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "two nodes have --node-rank %d: %s, and %s -- each needs one of its own",
                     nodes->me, stands, mine);
}

static NodesVerdict check_others(Nodes *nodes, char *text, size_t capacity, Error *err) {
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
    return NODES_RUNNING;
}

NodesVerdict nodes_poll(Nodes *nodes, int attempt, char *text, size_t capacity) {
    if (!nodes || clock_ns() < nodes->next_poll_ns) return NODES_RUNNING;
    nodes->next_poll_ns = clock_ns() + (uint64_t)POLL_MS * 1000000;
    char key[32], verdict[VERDICT_MAX];
    Error err = {0};
    snprintf(key, sizeof key, "end_%d", attempt);
    (void)count_up(nodes, "alive", nodes->me, 1, &err);
    // Only reads: the key never equals "-".
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
    return nodes->me == 0 ? check_others(nodes, text, capacity, &err) : NODES_RUNNING;
}

void nodes_publish_end(Nodes *nodes, int attempt, bool stop, const char *why) {
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
