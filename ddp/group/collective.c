/* collective.c: constructors of collectives, and their validation. */
#include "ddp/group/collective.h"

#include <stdint.h>

#include "ddp/group/operation.h"

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

size_t pg_type_bytes(PgType type) {
    static const size_t bytes[] = {4, 8, 4, 8, 1, 2, 2};
    return bytes[type];
}

size_t pg_send_count(const Collective *c, int rank, int size) {
    if (c->kind == PG_BARRIER || c->kind == PG_RECV) return 0;
    if (c->kind == PG_SCATTER && c->root != rank) return 0;
    return pg_sends_pieces(c->kind) ? c->count * (size_t)size : c->count;
}

size_t pg_receive_count(const Collective *c, int rank, int size) {
    if (c->kind == PG_BARRIER || c->kind == PG_SEND) return 0;
    if (c->kind == PG_GATHER && c->root != rank) return 0;
    return pg_receives_pieces(c->kind) ? c->count * (size_t)size : c->count;
}

// ---- checks ---------------------------------------------------------------------------------

// The error in the arguments; NULL: none.
static const char *fault(const Collective *c, int rank, int size) {
    if (pg_has_root(c->kind) && (c->root < 0 || c->root >= size)) return "there is no such rank";
    if (pg_is_pairwise((int)c->kind) && c->root == rank) return "a rank cannot send to itself";
    if (pg_reduces(c->kind) && c->op == PG_AVG && c->type != PG_F32 && c->type != PG_F64)
        return "avg is for F32 and F64";
    if (c->count > SIZE_MAX / 16 / (size_t)size) return "the size overflows";
    if (pg_send_count(c, rank, size) > 0 && !c->send) return "the send buffer is NULL";
    if (pg_receive_count(c, rank, size) > 0 && !c->receive) return "the receive buffer is NULL";
    return NULL;
}

int pg_collective_check(const Collective *c, int rank, int size, Error *err) {
    // Compared as unsigned: an enum outside its values is a caller's error.
    if ((unsigned)c->kind > PG_BARRIER || (unsigned)c->type > PG_BF16 || (unsigned)c->op > PG_MIN)
        return error_set(err, STATUS_FAILED, "rank %d: a collective of kind %d, type %d, op %d: %s",
                         rank, (int)c->kind, (int)c->type, (int)c->op, "there is no such thing");
    const char *wrong = fault(c, rank, size);
    char text[PG_DESCRIPTION_MAX];
    if (!wrong) return 0;
    return error_set(err, STATUS_FAILED, "rank %d of %d: %s: %s", rank, size,
                     pg_describe((int)c->kind, c, text), wrong);
}
