/* collective.h: collectives as values: what is to be done with which buffers. Making one
 * communicates nothing; pg_run and pg_start do (process_group.h).
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
    void *receive; // may equal send where the sizes agree (in place)
    size_t count;  // elements; which buffer it measures is said at each constructor
    PgType type;
    ReduceOp op;
    int root;   // the root, or for send and receive the peer
    int bucket; // of gradients, from 1; 0: something else. For the records only (PgTotals, traces)
} Collective;

// W is the group's size; all buffers are this rank's, and their shapes are in brackets.
// In place, buffer [count].
Collective pg_all_reduce(void *buffer, size_t count, PgType type, ReduceOp op);
Collective pg_broadcast(void *buffer, size_t count, PgType type, int root);
// In place, buffer [count]; on the other ranks than root it is left as it was.
Collective pg_reduce(void *buffer, size_t count, PgType type, ReduceOp op, int root);
// send [count] -> receive [W, count]; in place, send is piece `rank` of receive.
Collective pg_all_gather(const void *send, void *receive, size_t count, PgType type);
// send [count] -> receive [W, count], which is used at the root only (NULL elsewhere is fine).
Collective pg_gather(const void *send, void *receive, size_t count, PgType type, int root);
// send [W, count], used at the root only (NULL elsewhere is fine) -> receive [count].
Collective pg_scatter(const void *send, void *receive, size_t count, PgType type, int root);
// send [W, count] -> receive [count]; in place, receive is piece `rank` of send. (On shm, this and
// an all_gather in place copy nothing in or out if all [W, count] lie at one place of a shared
// allocation.)
Collective pg_reduce_scatter(const void *send, void *receive, size_t count, PgType type,
                             ReduceOp op);
// [count]. A send returns when its buffer may be used again; the message may still be on its way.
Collective pg_send(const void *buffer, size_t count, PgType type, int to);
Collective pg_recv(void *buffer, size_t count, PgType type, int from);
Collective pg_barrier(void);
// The collective, marked as what carries a bucket of gradients (index from 0).
Collective pg_of_bucket(Collective collective, size_t index);

size_t pg_type_bytes(PgType type); // of one element

// Refuses what rank `rank` of a group of `size` may not ask for: a root outside the group, itself
// as a peer, a buffer that is missing, an average of integers, sizes that overflow. 0, or -1 with
// err filled.
int pg_collective_check(const Collective *collective, int rank, int size, Error *err);

#endif
