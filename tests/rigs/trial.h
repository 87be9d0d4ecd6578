/* trial.h: one collective on values with a known result. Rank r's element i is ((r + i) mod W + 1)
 * * (i mod period + 1): different for each rank and index, with closed forms for the sum, the
 * maximum and the minimum over ranks that are exact in every type.
 */
#ifndef TESTS_RIGS_TRIAL_H
#define TESTS_RIGS_TRIAL_H

#include "tests/rigs/ranks.h"

#include "common/base/half.h"

static const char *const kind_names[] = {"all_reduce", "broadcast", "reduce",        "all_gather",
                                         "gather",     "scatter",   "reduce_scatter"};

// ---- elements of any type, read and written as double ---------------------------------------

static inline size_t type_bytes(PgType type) {
    if (type == PG_F16 || type == PG_BF16) return 2;
    return type == PG_U8 ? 1 : type == PG_F64 || type == PG_I64 ? 8 : 4;
}

static inline void put(void *buffer, PgType type, size_t i, double value) {
    switch (type) {
    case PG_F32:
        ((float *)buffer)[i] = (float)value;
        break;
    case PG_F64:
        ((double *)buffer)[i] = value;
        break;
    case PG_I32:
        ((int32_t *)buffer)[i] = (int32_t)value;
        break;
    case PG_I64:
        ((int64_t *)buffer)[i] = (int64_t)value;
        break;
    case PG_U8:
        ((uint8_t *)buffer)[i] = (uint8_t)value;
        break;
    case PG_F16:
        ((uint16_t *)buffer)[i] = half_to_f16((float)value);
        break;
    case PG_BF16:
        ((uint16_t *)buffer)[i] = half_to_bf16((float)value);
        break;
    }
}

static inline double get(const void *buffer, PgType type, size_t i) {
    switch (type) {
    case PG_F32:
        return (double)((const float *)buffer)[i];
    case PG_F64:
        return ((const double *)buffer)[i];
    case PG_I32:
        return (double)((const int32_t *)buffer)[i];
    case PG_I64:
        return (double)((const int64_t *)buffer)[i];
    case PG_U8:
        return (double)((const uint8_t *)buffer)[i];
    case PG_F16:
        return (double)half_from_f16(((const uint16_t *)buffer)[i]);
    case PG_BF16:
        return (double)half_from_bf16(((const uint16_t *)buffer)[i]);
    }
    return 0;
}

// i mod period + 1. Computed in 32 bits: divisions dominate the test's time.
static inline double base_of(PgType type, size_t i) {
    const uint32_t n = (uint32_t)i;
    return (type >= PG_U8 ? n % 16 : n % 1009) + 1; // bf16 holds integers up to 256
}

static inline double element(PgType type, int world, int rank, size_t i) {
    return (double)(((uint32_t)rank + (uint32_t)i) % (uint32_t)world + 1) * base_of(type, i);
}

// The reduction of all ranks' elements i.
static inline double reduced(PgType type, ReduceOp op, int world, size_t i) {
    double base = base_of(type, i), sum = base * world * (world + 1) / 2;
    if (op == PG_MAX) return base * world;
    if (op == PG_MIN) return base;
    if (op == PG_SUM) return sum;
    return type == PG_F32 ? (double)((float)sum * (float)(1.0 / world)) : sum * (1.0 / world);
}

// ---- one collective -------------------------------------------------------------------------

typedef struct Trial {
    ProcessGroup *group;
    Outcome *outcome;
    CollectiveKind kind;
    PgType type;
    ReduceOp op;
    size_t count;
    int root;
    bool async;
    void *send, *receive; // [W * count + 1] each; the last element is a guard
} Trial;

static const double UNTOUCHED = 77, GUARD = 99;

// Elements that this rank sends, and elements that it must find in `receive`.
static inline size_t send_elements(const Trial *t) {
    bool wide = t->kind == PG_SCATTER || t->kind == PG_REDUCE_SCATTER;
    return t->count * (wide ? (size_t)pg_size(t->group) : 1);
}

static inline size_t receive_elements(const Trial *t) {
    bool wide = t->kind == PG_ALL_GATHER || t->kind == PG_GATHER;
    return t->count * (wide ? (size_t)pg_size(t->group) : 1);
}

static inline bool in_place(const Trial *t) {
    return t->kind == PG_ALL_REDUCE || t->kind == PG_BROADCAST || t->kind == PG_REDUCE;
}

static inline Collective make(const Trial *t) {
    switch (t->kind) {
    case PG_ALL_REDUCE:
        return pg_all_reduce(t->receive, t->count, t->type, t->op);
    case PG_BROADCAST:
        return pg_broadcast(t->receive, t->count, t->type, t->root);
    case PG_REDUCE:
        return pg_reduce(t->receive, t->count, t->type, t->op, t->root);
    case PG_ALL_GATHER:
        return pg_all_gather(t->send, t->receive, t->count, t->type);
    case PG_GATHER:
        return pg_gather(t->send, t->receive, t->count, t->type, t->root);
    case PG_SCATTER:
        return pg_scatter(t->send, t->receive, t->count, t->type, t->root);
    default:
        return pg_reduce_scatter(t->send, t->receive, t->count, t->type, t->op);
    }
}

static inline void fill(const Trial *t) {
    const int rank = pg_rank(t->group), world = pg_size(t->group);
    const size_t count = receive_elements(t), sent = in_place(t) ? 0 : send_elements(t);
    for (size_t i = 0; i < count; i++)
        put(t->receive, t->type, i, in_place(t) ? element(t->type, world, rank, i) : UNTOUCHED);
    put(t->receive, t->type, count, GUARD);
    for (size_t i = 0; i < sent; i++) put(t->send, t->type, i, element(t->type, world, rank, i));
}

// Element i of a piece of t->count elements in `receive`; only gathers have more than piece 0.
static inline double expected(const Trial *t, int rank, int world, int piece, size_t i) {
    const size_t mine = (size_t)rank * t->count + i;
    switch (t->kind) {
    case PG_ALL_REDUCE:
        return reduced(t->type, t->op, world, i);
    case PG_BROADCAST:
        return element(t->type, world, t->root, i);
    case PG_REDUCE:
        return rank == t->root ? reduced(t->type, t->op, world, i)
                               : element(t->type, world, rank, i);
    case PG_ALL_GATHER:
        return element(t->type, world, piece, i);
    case PG_GATHER:
        return rank == t->root ? element(t->type, world, piece, i) : UNTOUCHED;
    case PG_SCATTER:
        return element(t->type, world, t->root, mine);
    default:
        return reduced(t->type, t->op, world, mine);
    }
}

// Returns whether element i of `receive` has this value.
static inline bool received(const Trial *t, size_t i, double want) {
    const double got = get(t->receive, t->type, i);
    if (got == want) return true;
    problem(t->outcome, "%s type %d op %d count %zu root %d: element %zu is %g, not %g",
            kind_names[t->kind], (int)t->type, (int)t->op, t->count, t->root, i, got, want);
    return false;
}

static inline void check(const Trial *t) {
    const int rank = pg_rank(t->group), world = pg_size(t->group);
    const size_t count = receive_elements(t), sent = in_place(t) ? 0 : send_elements(t);
    size_t at = 0;
    for (int piece = 0; at < count; piece++)
        for (size_t i = 0; i < t->count; i++, at++)
            if (!received(t, at, expected(t, rank, world, piece, i))) return;
    if (!received(t, count, GUARD)) return;
    for (size_t i = 0; i < sent; i++)
        if (get(t->send, t->type, i) != element(t->type, world, rank, i))
            problem(t->outcome, "%s: the send buffer has changed", kind_names[t->kind]);
}

#endif
