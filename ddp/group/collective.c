/* collective.c: Collectives as values: making, naming and checking them. Nothing here
 * communicates.
 */
#include "ddp/group/backend.h"

Collective pg_all_reduce(void *buffer, size_t count, PgType type, ReduceOp op) {
    return (Collective){PG_ALL_REDUCE, buffer, buffer, count, type, op, 0, 0};
}

Collective pg_broadcast(void *buffer, size_t count, PgType type, int root) {
    return (Collective){PG_BROADCAST, buffer, buffer, count, type, PG_SUM, root, 0};
}

Collective pg_reduce(void *buffer, size_t count, PgType type, ReduceOp op, int root) {
    return (Collective){PG_REDUCE, buffer, buffer, count, type, op, root, 0};
}

Collective pg_all_gather(const void *send, void *receive, size_t count, PgType type) {
    return (Collective){PG_ALL_GATHER, send, receive, count, type, PG_SUM, 0, 0};
}

Collective pg_gather(const void *send, void *receive, size_t count, PgType type, int root) {
    return (Collective){PG_GATHER, send, receive, count, type, PG_SUM, root, 0};
}

Collective pg_scatter(const void *send, void *receive, size_t count, PgType type, int root) {
    return (Collective){PG_SCATTER, send, receive, count, type, PG_SUM, root, 0};
}

Collective pg_reduce_scatter(const void *send, void *receive, size_t count, PgType type,
                             ReduceOp op) {
    return (Collective){PG_REDUCE_SCATTER, send, receive, count, type, op, 0, 0};
}

Collective pg_send(const void *buffer, size_t count, PgType type, int to) {
    return (Collective){PG_SEND, buffer, NULL, count, type, PG_SUM, to, 0};
}

Collective pg_recv(void *buffer, size_t count, PgType type, int from) {
    return (Collective){PG_RECV, NULL, buffer, count, type, PG_SUM, from, 0};
}

Collective pg_barrier(void) {
    return (Collective){.kind = PG_BARRIER, .type = PG_U8};
}

Collective pg_of_bucket(Collective collective, size_t index) {
    collective.bucket = (int)index + 1;
    return collective;
}

// ---- names ----------------------------------------------------------------------------------

static const char *const kind_names[] = {
    "all_reduce",     "broadcast", "reduce", "all_gather", "gather",       "scatter",
    "reduce_scatter", "send",      "recv",   "barrier",    "shared_alloc", "new_subgroup"};
static const char *const type_names[] = {"F32", "F64", "I32", "I64", "U8", "F16", "BF16"};
static const size_t type_bytes[] = {4, 8, 4, 8, 1, 2, 2};
static const char *const op_names[] = {"sum", "avg", "max", "min"};

size_t pg_type_bytes(PgType type) {
    return type_bytes[type];
}
const char *pg_kind_name(CollectiveKind kind) {
    return kind_names[kind];
}
const char *pg_type_name(PgType type) {
    return type_names[type];
}

void pg_trace_call(const PgCall *call, uint64_t end_ns, Trace *trace, int track) {
    const Collective *collective = &call->collective;
    bool has_bytes = collective->kind <= PG_BARRIER;
    trace_add(
        trace, track,
        &(TraceSpan){.name = pg_kind_name(collective->kind),
                     .number = (int64_t)call->sequence,
                     .begin_ns = call->begin_ns,
                     .end_ns = end_ns,
                     .bytes = has_bytes ? collective->count * pg_type_bytes(collective->type) : 0,
                     .bucket = collective->bucket - 1,
                     .ready_ns = collective->bucket ? call->issued_ns : 0});
}

const char *pg_rank_name(const int *global, int rank, char text[PG_RANK_NAME_MAX]) {
    if (global)
        snprintf(text, PG_RANK_NAME_MAX, "%d (global %d)", rank, global[rank]);
    else
        snprintf(text, PG_RANK_NAME_MAX, "%d", rank);
    return text;
}

// "new_subgroup(ranks 0, 3, 4)": what does not fit is cut off.
static void describe_members(uint64_t members, char text[PG_DESCRIPTION_MAX]) {
    const char *separator = "new_subgroup(ranks ";
    size_t length = 0;
    for (int r = 0; r < PG_SUBGROUP_PARENT_MAX && length < PG_DESCRIPTION_MAX; r++) {
        if (!(members >> r & 1)) continue;
        length +=
            (size_t)snprintf(text + length, PG_DESCRIPTION_MAX - length, "%s%d", separator, r);
        separator = ", ";
    }
    if (length < PG_DESCRIPTION_MAX) snprintf(text + length, PG_DESCRIPTION_MAX - length, ")");
}

const char *pg_describe(const Collective *collective, char text[PG_DESCRIPTION_MAX]) {
    const char *name = kind_names[collective->kind];
    const char *type = type_names[collective->type];
    const char *op = op_names[collective->op];
    size_t count = collective->count;
    int root = collective->root;
    switch (collective->kind) {
    case PG_ALL_REDUCE:
    case PG_REDUCE_SCATTER:
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%s, %zu, %s)", name, type, count, op);
        break;
    case PG_REDUCE:
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%s, %zu, %s, root %d)", name, type, count, op, root);
        break;
    case PG_BROADCAST:
    case PG_GATHER:
    case PG_SCATTER:
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%s, %zu, root %d)", name, type, count, root);
        break;
    case PG_SEND:
    case PG_RECV:
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%s, %zu, %s rank %d)", name, type, count,
                 collective->kind == PG_SEND ? "to" : "from", root);
        break;
    case PG_ALL_GATHER:
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%s, %zu)", name, type, count);
        break;
    case PG_BARRIER:
        snprintf(text, PG_DESCRIPTION_MAX, "%s", name);
        break;
    default: // for the ranks to agree on: not for pg_run
        if (collective->kind == PG_NEW_SUBGROUP)
            describe_members((uint64_t)count, text);
        else
            snprintf(text, PG_DESCRIPTION_MAX, "%s(%zu bytes)", name, count);
        break;
    }
    return text;
}

// ---- checks ---------------------------------------------------------------------------------

static bool has_root(CollectiveKind kind) {
    return kind == PG_BROADCAST || kind == PG_REDUCE || kind == PG_GATHER || kind == PG_SCATTER ||
           kind == PG_SEND || kind == PG_RECV;
}

static bool reduces(CollectiveKind kind) {
    return kind == PG_ALL_REDUCE || kind == PG_REDUCE || kind == PG_REDUCE_SCATTER;
}

static bool sends(const Collective *c, int rank) {
    return c->kind != PG_BARRIER && c->kind != PG_RECV &&
           (c->kind != PG_SCATTER || c->root == rank);
}

static bool receives(const Collective *c, int rank) {
    return c->kind != PG_BARRIER && c->kind != PG_SEND && (c->kind != PG_GATHER || c->root == rank);
}

// What is wrong with the arguments; NULL if nothing.
static const char *fault(const Collective *c, int rank, int size) {
    if (has_root(c->kind) && (c->root < 0 || c->root >= size)) return "there is no such rank";
    if ((c->kind == PG_SEND || c->kind == PG_RECV) && c->root == rank)
        return "a rank cannot send to itself";
    if (reduces(c->kind) && c->op == PG_AVG && c->type != PG_F32 && c->type != PG_F64)
        return "avg is for F32 and F64";
    if (c->count > SIZE_MAX / 16 / (size_t)size) return "the size overflows";
    if (c->count > 0 && sends(c, rank) && !c->send) return "the send buffer is NULL";
    if (c->count > 0 && receives(c, rank) && !c->receive) return "the receive buffer is NULL";
    return NULL;
}

int pg_collective_check(const Collective *c, int rank, int size, Error *err) {
    // Compared as unsigned: an enum that holds anything else is a caller gone wrong.
    if ((unsigned)c->kind > PG_BARRIER || (unsigned)c->type > PG_BF16 || (unsigned)c->op > PG_MIN)
        return error_set(err, STATUS_FAILED, "rank %d: a collective of kind %d, type %d, op %d: %s",
                         rank, (int)c->kind, (int)c->type, (int)c->op, "there is no such thing");
    const char *wrong = fault(c, rank, size);
    char text[PG_DESCRIPTION_MAX];
    if (!wrong) return 0;
    return error_set(err, STATUS_FAILED, "rank %d of %d: %s: %s", rank, size, pg_describe(c, text),
                     wrong);
}
