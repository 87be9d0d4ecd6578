/* collective.h: collectives as values: an operation and its buffers. Constructing one does not
 * communicate; pg_run and pg_start run it (process_group.h).
 */
#ifndef DDP_GROUP_COLLECTIVE_H
#define DDP_GROUP_COLLECTIVE_H

#include <stddef.h>

#include "common/base/error.h"

typedef enum CollectiveKind {
    PG_ALL_REDUCE,
    PG_BROADCAST,
    PG_REDUCE,
    PG_ALL_GATHER,
    PG_GATHER,
    PG_SCATTER,
    PG_REDUCE_SCATTER,
    PG_SEND,
    PG_RECV,
    PG_BARRIER,
} CollectiveKind;

// PG_F16, PG_BF16: uint16_t (common/base/half.h); sums round after each addition.
typedef enum PgType { PG_F32, PG_F64, PG_I32, PG_I64, PG_U8, PG_F16, PG_BF16 } PgType;
typedef enum ReduceOp { PG_SUM, PG_AVG, PG_MAX, PG_MIN } ReduceOp; // PG_AVG: floats only

typedef struct Collective {
    CollectiveKind kind;
    const void *send;
    void *receive; // may equal send where the shapes agree (in place)
    size_t count;  // elements; of which buffer: see each constructor
    PgType type;
    ReduceOp op;
    int root;   // of send and receive: the peer
    int bucket; // 1 + index of the bucket of gradients; 0: none. For PgTotals and traces only
} Collective;

// W: the group's size. Shapes are in brackets; all buffers are the caller's.
Collective pg_all_reduce(void *buffer, size_t count, PgType type, ReduceOp op);
Collective pg_broadcast(void *buffer, size_t count, PgType type, int root);
// In place, buffer [count]; unchanged on ranks other than root.
Collective pg_reduce(void *buffer, size_t count, PgType type, ReduceOp op, int root);
// send [count] -> receive [W, count]; in place, send is piece `rank` of receive.
Collective pg_all_gather(const void *send, void *receive, size_t count, PgType type);
// send [count] -> receive [W, count], used at the root only (may be NULL elsewhere).
Collective pg_gather(const void *send, void *receive, size_t count, PgType type, int root);
// send [W, count], used at the root only (may be NULL elsewhere) -> receive [count].
Collective pg_scatter(const void *send, void *receive, size_t count, PgType type, int root);
// send [W, count] -> receive [count]; in place, receive is piece `rank` of send. (On shm, this and
// an all_gather in place copy nothing in or out if all [W, count] have the same offset in one
// shared allocation.)
Collective pg_reduce_scatter(const void *send, void *receive, size_t count, PgType type,
                             ReduceOp op);
// [count]. A send returns when its buffer may be reused; the message may still be in flight.
Collective pg_send(const void *buffer, size_t count, PgType type, int to);
Collective pg_recv(void *buffer, size_t count, PgType type, int from);
Collective pg_barrier(void);
// The collective, marked as that of a bucket of gradients; index from 0.
Collective pg_of_bucket(Collective collective, size_t index);

size_t pg_type_bytes(PgType type); // of one element

// Validates the arguments for rank `rank` of a group of `size`: fails for a root outside the group,
// itself as a peer, a missing buffer, an average of integers, and sizes that overflow. 0, or -1
// with err filled.
int pg_collective_check(const Collective *collective, int rank, int size, Error *err);

#endif
