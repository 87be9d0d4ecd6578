/* mpi_moves.c: the collectives of the mpi backend as messages: which rank sends which bytes to
 * which.
 *
 * all_reduce: each rank receives its slice of all ranks' buffers, reduces it in rank order, and
 * sends the sum to all. Every byte crosses twice, as in a ring; the order of the sum depends
 * neither on the number of ranks nor on timing.
 *
 * Where two ranks exchange large messages, each posts its sends before its receives. A large
 * message is announced when its send is posted, requested when its receive is, and then transferred
 * as a whole; on a TCP connection nothing overtakes. If a rank sent its request before its own
 * announcement, the peer could start its transfer first, and its request in return would queue
 * behind it: the two directions of a slow link would take turns.
 */
#include <limits.h>
#include <string.h>

#include "common/base/memory.h"
#include "ddp/group/buffer.h"
#include "ddp/group/mpi/mpi_internal.h"
#include "ddp/group/reduce.h"

void *mpi_scratch(PgMpi *mpi, size_t bytes) {
    if (bytes > mpi->scratch_bytes) {
        free(mpi->scratch);
        mpi->scratch = memory_zalloc(bytes);
        mpi->scratch_bytes = bytes;
    }
    return mpi->scratch;
}

// ---- exchanges ---------------------------------------------------------------------------------

// A buffer as parts, one per rank: rank r's begins at base + r * stride. stride 0: one for all.
typedef struct MpiParts {
    const void *base;
    size_t stride, bytes, last; // bytes of a part, and of the last rank's
} MpiParts;

static MpiParts whole(const void *buffer, size_t bytes) {
    return (MpiParts){buffer, 0, bytes, bytes};
}

static MpiParts pieces(const void *buffer, size_t bytes) {
    return (MpiParts){buffer, bytes, bytes, bytes};
}

// The slices of a buffer [count] that each rank reduces.
static MpiParts slices(const PgMpi *mpi, const void *buffer) {
    const Collective *c = &mpi->call->collective;
    const size_t size = pg_type_bytes(c->type);
    const size_t bytes = size * reduce_slice_count(c->type, c->count, mpi->world);
    return (MpiParts){buffer, bytes, bytes, c->count * size - (size_t)(mpi->world - 1) * bytes};
}

static void *part_of(const MpiParts *parts, int rank) {
    return buffer_at(parts->base, (size_t)rank, parts->stride);
}

static size_t part_bytes(const PgMpi *mpi, const MpiParts *parts, int rank) {
    return rank + 1 == mpi->world ? parts->last : parts->bytes;
}

// Sends each rank its part of `give`, and receives the ranks' into the parts of `take`, between the
// ranks of a collective of this kind.
static int exchange(PgMpi *mpi, CollectiveKind kind, MpiParts give, MpiParts take, Error *err) {
    const Collective pattern = {.kind = kind, .root = mpi->call->collective.root};
    for (int r = 0; r < mpi->world; r++)
        if (r != mpi->rank && pg_sends(&pattern, mpi->rank, r) &&
            mpi_post_send(mpi, part_of(&give, r), part_bytes(mpi, &give, r), r, TAG_DATA, err) != 0)
            return -1;
    for (int r = 0; r < mpi->world; r++) {
        const size_t bytes = part_bytes(mpi, &take, r);
        if (r == mpi->rank || !pg_sends(&pattern, r, mpi->rank)) continue;
        mpi->moved += bytes;
        if (mpi_post_receive(mpi, part_of(&take, r), bytes, r, TAG_DATA, err) != 0) return -1;
    }
    return mpi_wait(mpi, err);
}

// ---- sums --------------------------------------------------------------------------------------

// Reduces this rank's part [count] of all ranks' buffers into target, which may be its place in the
// buffer. The other ranks' parts are received into scratch [W, count].
static int reduce_part(PgMpi *mpi, MpiParts parts, unsigned char *scratch, void *target,
                       size_t count, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t bytes = count * pg_type_bytes(c->type);
    void *own = part_of(&parts, mpi->rank);
    if (exchange(mpi, PG_REDUCE_SCATTER, parts, pieces(scratch, bytes), err) != 0) return -1;
    for (int r = 0; r < mpi->world; r++)
        mpi->sources[r] = r == mpi->rank ? own : scratch + (size_t)r * bytes;
    reduce_in_rank_order(c->type, c->op, mpi->sources, mpi->world, &target, 1, count);
    return 0;
}

// Each rank reduces its slice; the sums are gathered at all ranks, or at the root of a PG_REDUCE. A
// rank other than the root keeps its buffer unchanged: its sum is written behind the parts in
// scratch.
static int reduce(PgMpi *mpi, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t size = pg_type_bytes(c->type), world = (size_t)mpi->world;
    const ReduceSlice mine = reduce_slice_of(c->type, c->count, mpi->world, mpi->rank);
    const size_t bytes = mine.count * size;
    const bool all = c->kind == PG_ALL_REDUCE, gathers = all || mpi->rank == c->root;
    unsigned char *scratch = mpi_scratch(mpi, (gathers ? world : world + 1) * bytes);
    void *sum = gathers ? buffer_at(c->receive, mine.first, size) : scratch + world * bytes;
    if (reduce_part(mpi, slices(mpi, c->send), scratch, sum, mine.count, err) != 0) return -1;
    return exchange(mpi, all ? PG_ALL_GATHER : PG_GATHER, whole(sum, bytes),
                    slices(mpi, c->receive), err);
}

// ---- MPI's own all-reduce ----------------------------------------------------------------------

// Finds MPI's type for sums that MPI computes as reduce.h does, except for the order. Not for
// 16-bit floats, which MPI lacks, nor for MAX and MIN, whose NaN it leaves undefined.
static bool find_fast_type(const Collective *c, MPI_Datatype *type) {
    if (c->op != PG_SUM && c->op != PG_AVG) return false;
    if (c->type == PG_F32)
        *type = MPI_FLOAT;
    else if (c->type == PG_F64)
        *type = MPI_DOUBLE;
    else
        return false;
    return true;
}

static int fast_all_reduce(PgMpi *mpi, MPI_Datatype type, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t size = pg_type_bytes(c->type), most = INT_MAX / 8;
    for (size_t first = 0; first < c->count; first += most) {
        const int count = (int)(c->count - first < most ? c->count - first : most);
        const int request = mpi_add_requests(mpi, 1, -1); // of no rank in particular
        if (MPI(MPI_Iallreduce(MPI_IN_PLACE, buffer_at(c->receive, first, size), count, type,
                               MPI_SUM, mpi->comm, &mpi->requests[request]),
                err) != 0 ||
            mpi_wait(mpi, err) != 0)
            return -1;
    }
    mpi->moved += 2 * (c->count * size) * (size_t)(mpi->world - 1) / (size_t)mpi->world;
    if (c->op == PG_AVG) reduce_scale(c->type, c->receive, mpi->world, c->count);
    return 0;
}

// ---- all of them -------------------------------------------------------------------------------

int mpi_move(PgMpi *mpi, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t bytes = c->count * pg_type_bytes(c->type), rank = (size_t)mpi->rank;
    const bool is_root = mpi->rank == c->root;
    MPI_Datatype type;
    if (c->kind == PG_ALL_REDUCE && mpi->fast && find_fast_type(c, &type))
        return fast_all_reduce(mpi, type, err);
    switch (c->kind) {
    case PG_ALL_REDUCE:
    case PG_REDUCE:
        return reduce(mpi, err);
    case PG_REDUCE_SCATTER:
        return reduce_part(mpi, pieces(c->send, bytes),
                           mpi_scratch(mpi, (size_t)mpi->world * bytes), c->receive, c->count, err);
    case PG_BROADCAST:
        return exchange(mpi, c->kind, whole(c->send, bytes), whole(c->receive, bytes), err);
    case PG_ALL_GATHER:
    case PG_GATHER:
        if (c->kind == PG_ALL_GATHER || is_root)
            buffer_copy(buffer_at(c->receive, rank, bytes), c->send, bytes);
        return exchange(mpi, c->kind, whole(c->send, bytes), pieces(c->receive, bytes), err);
    case PG_SCATTER:
        if (is_root) buffer_copy(c->receive, buffer_at(c->send, rank, bytes), bytes);
        return exchange(mpi, c->kind, pieces(c->send, bytes), whole(c->receive, bytes), err);
    default: // PG_BARRIER: mpi_meet has waited for all ranks
        return 0;
    }
}

// ---- pairs -------------------------------------------------------------------------------------

int mpi_send(PgMpi *mpi, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t bytes = c->count * pg_type_bytes(c->type);
    mpi->message_out = (MpiMessage){.count = c->count, .type = (int64_t)c->type};
    mpi->moved += bytes;
    if (mpi_check(mpi, err) != 0 ||
        mpi_post_send(mpi, &mpi->message_out, sizeof mpi->message_out, c->root, TAG_MESSAGE, err) !=
            0 ||
        mpi_post_send(mpi, c->send, bytes, c->root, TAG_CONTENT, err) != 0)
        return -1;
    return mpi_wait(mpi, err);
}

int mpi_receive(PgMpi *mpi, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t bytes = c->count * pg_type_bytes(c->type);
    MpiMessage *message = &mpi->message_in;
    mpi->moved += bytes;
    if (mpi_check(mpi, err) != 0 ||
        mpi_post_receive(mpi, message, sizeof *message, c->root, TAG_MESSAGE, err) != 0 ||
        mpi_wait(mpi, err) != 0 ||
        pg_message_compare(mpi->call, mpi->rank, message->count, (int)message->type, err) != 0 ||
        mpi_post_receive(mpi, c->receive, bytes, c->root, TAG_CONTENT, err) != 0)
        return -1;
    return mpi_wait(mpi, err);
}
