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

static int take_from(PgMpi *mpi, void *to, size_t bytes, int rank, Error *err) {
    mpi->moved += bytes;
    return mpi_post_receive(mpi, to, bytes, rank, TAG_DATA, err);
}

static int give_to(PgMpi *mpi, const void *from, size_t bytes, int rank, Error *err) {
    return mpi_post_send(mpi, from, bytes, rank, TAG_DATA, err);
}

// ---- sums --------------------------------------------------------------------------------------

static ReduceSlice slice_of(const PgMpi *mpi, int rank) {
    const Collective *c = &mpi->call->collective;
    return reduce_slice_of(c->type, c->count, mpi->world, rank);
}

// Writes the sum over all ranks to target [count], which may be this rank's own part [count]. The
// other ranks' parts are in scratch [W, count].
static void add_up(const PgMpi *mpi, void *own, unsigned char *scratch, void *target,
                   size_t count) {
    const Collective *c = &mpi->call->collective;
    size_t bytes = count * pg_type_bytes(c->type);
    for (int r = 0; r < mpi->world; r++)
        mpi->sources[r] = r == mpi->rank ? own : scratch + (size_t)r * bytes;
    reduce_in_rank_order(c->type, c->op, mpi->sources, mpi->world, &target, 1, count);
}

// Reduces this rank's slice into `target`, which may be its place in the buffer.
static int reduce_slices(PgMpi *mpi, void *target, unsigned char *scratch, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t size = pg_type_bytes(c->type);
    const ReduceSlice mine = slice_of(mpi, mpi->rank);
    size_t bytes = mine.count * size;
    for (int r = 0; r < mpi->world; r++) {
        const ReduceSlice theirs = slice_of(mpi, r);
        if (r != mpi->rank &&
            give_to(mpi, buffer_at(c->send, theirs.first, size), theirs.count * size, r, err) != 0)
            return -1;
    }
    for (int r = 0; r < mpi->world; r++)
        if (r != mpi->rank && take_from(mpi, scratch + (size_t)r * bytes, bytes, r, err) != 0)
            return -1;
    if (mpi_wait(mpi, err) != 0) return -1;
    add_up(mpi, buffer_at(c->send, mine.first, size), scratch, target, mine.count);
    return 0;
}

static int all_reduce(PgMpi *mpi, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t size = pg_type_bytes(c->type);
    const ReduceSlice mine = slice_of(mpi, mpi->rank);
    void *sum = buffer_at(c->receive, mine.first, size);
    unsigned char *scratch = mpi_scratch(mpi, (size_t)mpi->world * mine.count * size);
    if (reduce_slices(mpi, sum, scratch, err) != 0) return -1;
    for (int r = 0; r < mpi->world; r++)
        if (r != mpi->rank && give_to(mpi, sum, mine.count * size, r, err) != 0) return -1;
    for (int r = 0; r < mpi->world; r++) {
        const ReduceSlice theirs = slice_of(mpi, r);
        if (r != mpi->rank && take_from(mpi, buffer_at(c->receive, theirs.first, size),
                                        theirs.count * size, r, err) != 0)
            return -1;
    }
    return mpi_wait(mpi, err);
}

// A rank other than the root keeps its buffer unchanged: its sum is written behind the parts in
// scratch.
static int reduce(PgMpi *mpi, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t size = pg_type_bytes(c->type);
    const ReduceSlice mine = slice_of(mpi, mpi->rank);
    size_t bytes = mine.count * size, world = (size_t)mpi->world;
    bool is_root = mpi->rank == c->root;
    unsigned char *scratch = mpi_scratch(mpi, (world + 1) * bytes);
    void *sum = is_root ? buffer_at(c->receive, mine.first, size) : scratch + world * bytes;
    if (reduce_slices(mpi, sum, scratch, err) != 0) return -1;
    if (!is_root && give_to(mpi, sum, bytes, c->root, err) != 0) return -1;
    for (int r = 0; is_root && r < mpi->world; r++) {
        const ReduceSlice theirs = slice_of(mpi, r);
        if (r != mpi->rank && take_from(mpi, buffer_at(c->receive, theirs.first, size),
                                        theirs.count * size, r, err) != 0)
            return -1;
    }
    return mpi_wait(mpi, err);
}

static int reduce_scatter(PgMpi *mpi, Error *err) {
    const Collective *c = &mpi->call->collective;
    size_t bytes = c->count * pg_type_bytes(c->type);
    unsigned char *scratch = mpi_scratch(mpi, (size_t)mpi->world * bytes);
    for (int r = 0; r < mpi->world; r++)
        if (r != mpi->rank &&
            give_to(mpi, buffer_at(c->send, (size_t)r, bytes), bytes, r, err) != 0)
            return -1;
    for (int r = 0; r < mpi->world; r++)
        if (r != mpi->rank && take_from(mpi, scratch + (size_t)r * bytes, bytes, r, err) != 0)
            return -1;
    if (mpi_wait(mpi, err) != 0) return -1;
    add_up(mpi, buffer_at(c->send, (size_t)mpi->rank, bytes), scratch, c->receive, c->count);
    return 0;
}

// ---- copies ------------------------------------------------------------------------------------

static int broadcast(PgMpi *mpi, size_t bytes, Error *err) {
    const Collective *c = &mpi->call->collective;
    if (mpi->rank != c->root && take_from(mpi, c->receive, bytes, c->root, err) != 0) return -1;
    for (int r = 0; mpi->rank == c->root && r < mpi->world; r++)
        if (r != mpi->rank && give_to(mpi, c->send, bytes, r, err) != 0) return -1;
    return mpi_wait(mpi, err);
}

// Gathers all ranks' buffers, in rank order, at the root or, if `all`, at every rank.
static int gather(PgMpi *mpi, size_t bytes, bool all, Error *err) {
    const Collective *c = &mpi->call->collective;
    bool gathers = all || mpi->rank == c->root;
    if (gathers) buffer_copy(buffer_at(c->receive, (size_t)mpi->rank, bytes), c->send, bytes);
    for (int r = 0; r < mpi->world; r++)
        if (r != mpi->rank && (all || r == c->root) && give_to(mpi, c->send, bytes, r, err) != 0)
            return -1;
    for (int r = 0; gathers && r < mpi->world; r++)
        if (r != mpi->rank &&
            take_from(mpi, buffer_at(c->receive, (size_t)r, bytes), bytes, r, err) != 0)
            return -1;
    return mpi_wait(mpi, err);
}

static int scatter(PgMpi *mpi, size_t bytes, Error *err) {
    const Collective *c = &mpi->call->collective;
    bool is_root = mpi->rank == c->root;
    if (!is_root && take_from(mpi, c->receive, bytes, c->root, err) != 0) return -1;
    if (is_root) buffer_copy(c->receive, buffer_at(c->send, (size_t)mpi->rank, bytes), bytes);
    for (int r = 0; is_root && r < mpi->world; r++)
        if (r != mpi->rank &&
            give_to(mpi, buffer_at(c->send, (size_t)r, bytes), bytes, r, err) != 0)
            return -1;
    return mpi_wait(mpi, err);
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
        MPI_Request request;
        int done = 0, count = (int)(c->count - first < most ? c->count - first : most);
        if (MPI(MPI_Iallreduce(MPI_IN_PLACE, buffer_at(c->receive, first, size), count, type,
                               MPI_SUM, mpi->comm, &request),
                err) != 0)
            return -1;
        for (;;) {
            if (MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE), err) != 0) return -1;
            if (done) break;
            if (mpi_check(mpi, err) != 0) return -1;
            mpi_nap();
        }
    }
    mpi->moved += 2 * (c->count * size) * (size_t)(mpi->world - 1) / (size_t)mpi->world;
    if (c->op == PG_AVG) reduce_scale(c->type, c->receive, mpi->world, c->count);
    return 0;
}

// ---- all of them -------------------------------------------------------------------------------

int mpi_move(PgMpi *mpi, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t bytes = c->count * pg_type_bytes(c->type);
    MPI_Datatype type;
    if (c->kind == PG_ALL_REDUCE && mpi->fast && find_fast_type(c, &type))
        return fast_all_reduce(mpi, type, err);
    switch (c->kind) {
    case PG_ALL_REDUCE:
        return all_reduce(mpi, err);
    case PG_BROADCAST:
        return broadcast(mpi, bytes, err);
    case PG_REDUCE:
        return reduce(mpi, err);
    case PG_ALL_GATHER:
        return gather(mpi, bytes, true, err);
    case PG_GATHER:
        return gather(mpi, bytes, false, err);
    case PG_SCATTER:
        return scatter(mpi, bytes, err);
    case PG_REDUCE_SCATTER:
        return reduce_scatter(mpi, err);
    default: // PG_BARRIER: mpi_meet has waited for all ranks
        return 0;
    }
}

// ---- pairs -------------------------------------------------------------------------------------

int mpi_send(PgMpi *mpi, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t bytes = c->count * pg_type_bytes(c->type);
    mpi->message_out = (MpiMessage){.count = c->count, .type = (int64_t)c->type};
    mpi->count = 0;
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
    mpi->count = 0;
    mpi->moved += bytes;
    if (mpi_check(mpi, err) != 0 ||
        mpi_post_receive(mpi, message, sizeof *message, c->root, TAG_MESSAGE, err) != 0 ||
        mpi_wait(mpi, err) != 0 ||
        pg_message_compare(mpi->call, mpi->rank, message->count, (int)message->type, err) != 0 ||
        mpi_post_receive(mpi, c->receive, bytes, c->root, TAG_CONTENT, err) != 0)
        return -1;
    return mpi_wait(mpi, err);
}
