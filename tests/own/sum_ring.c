/* sum_ring.c: a ring: each chunk is summed from rank to rank, and its sum is then passed around
 * once more. */
#include <stdlib.h>

#include "ddp/own/own_all_reduce.h"

typedef struct Ring {
    ProcessGroup *group;
    int rank, size;
    size_t count;
} Ring;

static size_t begin_of(const Ring *ring, int chunk) {
    return ring->count * (size_t)chunk / (size_t)ring->size;
}

// Sends chunk `out` to the right neighbour and receives chunk `in` from the left one into `to`.
// Even ranks send first and odd ranks receive first, so that the ring does not deadlock. In a ring
// of odd size, ranks size - 1 and 0 both send first: the send of rank size - 1 waits until rank 0
// receives.
static int pass(const Ring *ring, float *values, int out, int in, float *to, Error *err) {
    int right = (ring->rank + 1) % ring->size, left = (ring->rank + ring->size - 1) % ring->size;
    size_t out_begin = begin_of(ring, out), out_count = begin_of(ring, out + 1) - out_begin;
    size_t in_count = begin_of(ring, in + 1) - begin_of(ring, in);
    Collective send = pg_send(values + out_begin, out_count, PG_F32, right);
    Collective receive = pg_recv(to, in_count, PG_F32, left);
    const bool first = ring->rank % 2 == 0;
    if (pg_run(ring->group, first ? send : receive, err) != 0) return -1;
    return pg_run(ring->group, first ? receive : send, err);
}

static int sum(ProcessGroup *group, float *values, size_t count, Error *err) {
    const Ring ring = {group, pg_rank(group), pg_size(group), count};
    const int size = ring.size;
    float *received = malloc((count / (size_t)size + 1) * sizeof *received);
    int status = 0;
    for (int step = 0; step < size - 1 && status == 0; step++) {
        int out = (ring.rank - step + size) % size, in = (out - 1 + size) % size;
        status = pass(&ring, values, out, in, received, err);
        size_t begin = begin_of(&ring, in), end = begin_of(&ring, in + 1);
        for (size_t i = begin; i < end && status == 0; i++) values[i] += received[i - begin];
    }
    for (int step = 0; step < size - 1 && status == 0; step++) {
        int out = (ring.rank + 1 - step + size) % size, in = (out - 1 + size) % size;
        status = pass(&ring, values, out, in, values + begin_of(&ring, in), err);
    }
    free(received);
    return status;
}

const OwnAllReduce own_all_reduce = {OWN_ALL_REDUCE_VERSION, sum};
