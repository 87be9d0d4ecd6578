/* operation.h: operations as numbers, which the ranks of a group must agree on, and their names in
 * messages, records and traces.
 */
#ifndef DDP_GROUP_OPERATION_H
#define DDP_GROUP_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "ddp/group/collective.h"

// An operation is a CollectiveKind or one of these, which pg_run does not accept. Collective.count
// holds their argument.
typedef enum PgInternal {
    PG_SHARED_ALLOC = PG_BARRIER + 1, // bytes
    PG_NEW_SUBGROUP,                  // members: bit r is set if rank r of the parent is one
} PgInternal;

enum { PG_SUBGROUP_PARENT_MAX = 64 }; // ranks of the largest parent of subgroups
static inline int pg_member_count(uint64_t members) {
    return __builtin_popcountll(members);
}
// The rank in the subgroup of rank `rank` of the parent; -1: it is no member.
static inline int pg_member_rank(uint64_t members, int rank) {
    return members >> rank & 1 ? pg_member_count(members & (((uint64_t)1 << rank) - 1)) : -1;
}

const char *pg_operation_name(int operation); // "all_reduce"
const char *pg_type_name(PgType type);        // "F32"
static inline bool pg_is_pairwise(int operation) {
    return operation == PG_SEND || operation == PG_RECV;
}

static inline bool pg_has_root(CollectiveKind kind) { // or a peer
    return kind == PG_BROADCAST || kind == PG_REDUCE || kind == PG_GATHER || kind == PG_SCATTER ||
           pg_is_pairwise((int)kind);
}
// Which data moves: whether rank `to` needs rank `from`'s send buffer, and whether that buffer, or
// the receive buffer, has one piece [count] per rank. Not for pairs and barriers.
static inline bool pg_sends(const Collective *c, int from, int to) {
    if (c->kind == PG_BROADCAST) return from == c->root && to != c->root;
    if (c->kind == PG_SCATTER) return from == c->root;
    return (c->kind != PG_GATHER && c->kind != PG_REDUCE) || to == c->root;
}
static inline bool pg_sends_pieces(CollectiveKind kind) {
    return kind == PG_SCATTER || kind == PG_REDUCE_SCATTER;
}
static inline bool pg_receives_pieces(CollectiveKind kind) {
    return kind == PG_GATHER || kind == PG_ALL_GATHER;
}
static inline bool pg_reduces(CollectiveKind kind) {
    return kind == PG_ALL_REDUCE || kind == PG_REDUCE || kind == PG_REDUCE_SCATTER;
}
// The elements of rank `rank`'s send and receive buffers in a group of `size`; 0: not used.
size_t pg_send_count(const Collective *collective, int rank, int size);
size_t pg_receive_count(const Collective *collective, int rank, int size);

// "all_reduce(F32, 1000, sum)". Returns text.
enum { PG_DESCRIPTION_MAX = 96 };
const char *pg_describe(int operation, const Collective *collective, char text[PG_DESCRIPTION_MAX]);

// "1", or in a subgroup "1 (global 3)". Returns text. global: [size], the ranks in the job; NULL:
// identical.
enum { PG_RANK_NAME_MAX = 40 };
const char *pg_rank_name(const int *global, int rank, char text[PG_RANK_NAME_MAX]);

#endif
