/* hosts.c: ranks of the mpi backend that share a host, and the all-reduce that uses it.
 *
 * If the ranks of each host are consecutive (0 and 1, 2 and 3) and can map each other's memory, a
 * bucket crosses the network once each way, independent of the number of ranks per host, and the
 * order of sums is kept. Rank j of each host owns slice j of the buffer:
 *
 *     host 0              host 1              host 2
 *     r0 + r1 ---------> + r2 + r3 ---------> + r4 + r5      partial sums, chunk by chunk
 *     result <---------- result <------------ result
 *
 * Both directions of a link are busy at the same time, because the first chunks return before the
 * last have left. Reducing within each host first would send no less, and change the order of sums.
 *
 * On a single host only headers are sent.
 */
#include <string.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "ddp/group/buffer.h"
#include "ddp/group/mpi/mpi_internal.h"
#include "ddp/group/reduce.h"

// Below the eager limit (Open MPI over TCP: 64 KiB) MPI sends a chunk without a request of the
// receiver. The request for a larger chunk would queue behind all that is in flight in its
// direction, and the two directions would take turns.
enum { CHUNK_BYTES = 60 * 1024 };

typedef struct SegmentAddress { // for the other ranks of the host
    int64_t pid, fd;            // pid 0: no segment
} SegmentAddress;

static int rank_at(const PgMpi *mpi, int host, int local_rank) {
    return host * mpi->hosts.local_size + local_rank;
}

// ---- which ranks share a host ------------------------------------------------------------------

// answers[r]: the first rank of rank r's host, and the host's number of ranks.
static int find_local_ranks(PgMpi *mpi, int (*answers)[2], Error *err) {
    MPI_Comm local;
    int mine[2] = {mpi->rank, 0};
    if (MPI(MPI_Comm_split_type(mpi->comm, MPI_COMM_TYPE_SHARED, mpi->rank, MPI_INFO_NULL, &local),
            err) != 0 ||
        MPI(MPI_Comm_size(local, &mine[1]), err) != 0 ||
        MPI(MPI_Bcast(&mine[0], 1, MPI_INT, 0, local), err) != 0 ||
        MPI(MPI_Comm_free(&local), err) != 0)
        return -1;
    return MPI(MPI_Allgather(mine, 2, MPI_INT, answers, 2, MPI_INT, mpi->comm), err);
}

// Sets hosts.blocked if the ranks of each host can map each other's memory. Ranks in two containers
// of one machine cannot, though MPI reports one host.
static int try_memory(PgMpi *mpi, Error *err) {
    static const PgCall joining = {.operation = PG_BARRIER, .deadline_ns = UINT64_MAX};
    Error refused = {0};
    mpi->call = &joining; // the opening's CallWatch has the deadline
    PgShmSegment *probe = mpi_share(mpi, segment_whole_pages(1), &refused);
    int32_t mine = probe != NULL, all = 0;
    segment_release(probe);
    if (MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT32_T, MPI_MIN, mpi->comm), err) != 0) return -1;
    mpi->hosts.blocked = all != 0;
    return 0;
}

int mpi_find_hosts(PgMpi *mpi, Error *err) {
    const MpiHosts alone = {.count = mpi->world, .host = mpi->rank, .local_size = 1};
    int(*answers)[2] = memory_zalloc((size_t)mpi->world * sizeof *answers);
    int status = find_local_ranks(mpi, answers, err);
    const int size = answers[0][1];
    bool consecutive = !status && size > 1;
    for (int r = 0; r < mpi->world && consecutive; r++)
        consecutive = answers[r][1] == size && answers[r][0] == r / size * size;
    free(answers);
    if (consecutive) {
        mpi->hosts = (MpiHosts){.host = mpi->rank / size,
                                .count = mpi->world / size,
                                .local_rank = mpi->rank % size,
                                .local_size = size};
        status = try_memory(mpi, err);
    }
    if (!mpi->hosts.blocked) mpi->hosts = alone;
    return status;
}

// ---- shared memory -----------------------------------------------------------------------------

// The host's first rank creates the segment and announces it; the others attach and confirm.
// addresses: [local_size], for messages, which may be in flight after a failure.
static PgShmSegment *open_segment(PgMpi *mpi, size_t bytes, SegmentAddress *addresses, Error *err) {
    const MpiHosts *hosts = &mpi->hosts;
    const bool makes = hosts->local_rank == 0;
    const int count = hosts->local_size;
    SegmentAddress *mine = &addresses[hosts->local_rank];
    PgShmSegment *segment = makes ? segment_create(bytes, err) : NULL;
    if (segment) *mine = (SegmentAddress){.pid = getpid(), .fd = segment->fd};
    if (mpi_swap(mpi, addresses, sizeof *mine, count, TAG_SEGMENT, err) != 0) return segment;
    if (!makes && addresses[0].pid != 0)
        segment = segment_open((int)addresses[0].pid, (int)addresses[0].fd, bytes, err);
    *mine = (SegmentAddress){.pid = segment != NULL};
    if (mpi_swap(mpi, addresses, sizeof *mine, count, TAG_SEGMENT, err) != 0) return segment;
    for (int j = 0; j < count; j++)
        if (addresses[j].pid == 0)
            error_set(err, STATUS_FAILED, "rank %d cannot map the memory of rank %d",
                      rank_at(mpi, hosts->host, j), rank_at(mpi, hosts->host, 0));
    return segment;
}

PgShmSegment *mpi_share(PgMpi *mpi, size_t stride, Error *err) {
    const size_t local_size = (size_t)mpi->hosts.local_size;
    SegmentAddress *addresses = memory_zalloc(local_size * sizeof *addresses);
    Error error = {0};
    PgShmSegment *segment = open_segment(mpi, stride * local_size, addresses, &error);
    if (error.status != STATUS_OK) {
        // The addresses are not freed: messages into them may be in flight.
        segment_release(segment);
        return error_null(err, error.status, "%s", error.message);
    }
    free(addresses);
    segment_seal(segment); // all have opened it
    return segment;
}

// ---- the chain ---------------------------------------------------------------------------------

typedef struct Chain {
    PgMpi *mpi;
    void **buffers; // [local_size], the ranks' of this host
    PgType type;
    ReduceOp op;                 // PG_SUM for PG_AVG, which is scaled at the end
    size_t size;                 // of an element
    size_t first, count, chunk;  // this rank's slice, and a chunk of it, in elements
    unsigned char *partial;      // [count], partial sums received and sent
    int chunks, added, returned; // in total; reduced with this host's ranks; complete
    int in, out, back, on;       // index of the first request of each kind; chunk c: + c
} Chain;

// Chunk c of this rank's slice.
typedef struct Chunk {
    int index, bytes;
    size_t count, offset; // elements; bytes from the begin of a rank's buffer
    void *own, *partial;  // in this rank's buffer; in chain->partial
} Chunk;

static Chunk chunk_of(const Chain *chain, int c) {
    const size_t first = (size_t)c * chain->chunk, left = chain->count - first;
    const size_t count = left < chain->chunk ? left : chain->chunk;
    const size_t offset = (chain->first + first) * chain->size;
    return (Chunk){.index = c,
                   .bytes = (int)(count * chain->size),
                   .count = count,
                   .offset = offset,
                   .own = buffer_at(chain->buffers[chain->mpi->hosts.local_rank], offset, 1),
                   .partial = buffer_at(chain->partial, first, chain->size)};
}

static int receive_chunk(const Chain *chain, const Chunk *chunk, void *data, int first, int tag,
                         Error *err) {
    chain->mpi->moved += (size_t)chunk->bytes;
    return mpi_start_receive(chain->mpi, first + chunk->index, data, chunk->bytes, tag, err);
}

// Copies a complete chunk from this rank's buffer to the other ranks of the host, and sends it to
// the previous host.
static int finish_chunk(Chain *chain, const Chunk *chunk, Error *err) {
    PgMpi *mpi = chain->mpi;
    for (int j = 0; j < mpi->hosts.local_size; j++)
        buffer_copy(buffer_at(chain->buffers[j], chunk->offset, 1), chunk->own,
                    (size_t)chunk->bytes);
    chain->returned++;
    if (mpi->hosts.host == 0) return 0;
    return mpi_start_send(mpi, chain->on + chunk->index, chunk->own, chunk->bytes, TAG_RESULT, err);
}

// Adds this host's ranks to the partial sum of a chunk, and sends it to the next host; the last
// host completes it.
static int add_chunk(Chain *chain, const Chunk *chunk, Error *err) {
    PgMpi *mpi = chain->mpi;
    const bool last = mpi->hosts.host + 1 == mpi->hosts.count;
    void *target = last ? chunk->own : chunk->partial;
    int sources = 0;
    if (mpi->hosts.host > 0) mpi->sources[sources++] = chunk->partial;
    for (int j = 0; j < mpi->hosts.local_size; j++)
        mpi->sources[sources++] = buffer_at(chain->buffers[j], chunk->offset, 1);
    reduce_in_rank_order(chain->type, chain->op, mpi->sources, sources, &target, 1, chunk->count);
    chain->added++;
    if (!last) {
        const int out = chain->out + chunk->index;
        if (mpi_start_send(mpi, out, target, chunk->bytes, TAG_DATA, err) != 0) return -1;
        return receive_chunk(chain, chunk, chunk->own, chain->back, TAG_RESULT, err);
    }
    if (mpi->call->collective.op == PG_AVG)
        reduce_scale(chain->type, target, mpi->world, chunk->count);
    return finish_chunk(chain, chunk, err);
}

// Processes the next chunk of one direction, if it has been received. An inactive request counts as
// received: the first host receives no partial sums. *moved: there was one.
static int advance(Chain *chain, int c, int first_request, bool *moved, Error *err) {
    const Chunk chunk = chunk_of(chain, c);
    int done = 0;
    if (MPI(MPI_Test(&chain->mpi->requests[first_request + c], &done, MPI_STATUS_IGNORE), err) != 0)
        return -1;
    if (!done) return 0;
    *moved = true;
    return first_request == chain->in ? add_chunk(chain, &chunk, err)
                                      : finish_chunk(chain, &chunk, err);
}

static int run_chain(Chain *chain, Error *err) {
    PgMpi *mpi = chain->mpi;
    for (int c = 0; mpi->hosts.host > 0 && c < chain->chunks; c++) {
        const Chunk chunk = chunk_of(chain, c);
        if (receive_chunk(chain, &chunk, chunk.partial, chain->in, TAG_DATA, err) != 0) return -1;
    }
    while (chain->returned < chain->chunks) {
        bool moved = false;
        if (chain->added < chain->chunks &&
            advance(chain, chain->added, chain->in, &moved, err) != 0)
            return -1;
        if (chain->returned < chain->added &&
            advance(chain, chain->returned, chain->back, &moved, err) != 0)
            return -1;
        if (moved) continue;
        if (mpi_check(mpi, err) != 0) return -1;
        mpi_nap();
    }
    return mpi_wait(mpi, err); // completes the sends
}

// ---- the all-reduce ----------------------------------------------------------------------------

static Chain plan_chain(PgMpi *mpi, void **buffers) {
    const Collective *c = &mpi->call->collective;
    const MpiHosts *hosts = &mpi->hosts;
    const size_t size = pg_type_bytes(c->type);
    const ReduceSlice mine =
        reduce_slice_of(c->type, c->count, hosts->local_size, hosts->local_rank);
    Chain chain = {.mpi = mpi, .buffers = buffers, .type = c->type, .op = c->op, .size = size};
    if (c->op == PG_AVG) chain.op = PG_SUM;
    chain.first = mine.first;
    chain.count = mine.count;
    chain.chunk = CHUNK_BYTES / size;
    chain.chunks = (int)((chain.count + chain.chunk - 1) / chain.chunk);
    chain.partial = mpi_scratch(mpi, chain.count * size);
    const int before = rank_at(mpi, hosts->host - 1, hosts->local_rank);
    const int after = rank_at(mpi, hosts->host + 1, hosts->local_rank);
    chain.in = mpi_add_requests(mpi, chain.chunks, before);
    chain.out = mpi_add_requests(mpi, chain.chunks, after);
    chain.back = mpi_add_requests(mpi, chain.chunks, after);
    chain.on = mpi_add_requests(mpi, chain.chunks, before);
    return chain;
}

int mpi_host_all_reduce(PgMpi *mpi, const SharedBlocks *blocks, Error *err) {
    const int local_size = mpi->hosts.local_size;
    for (int j = 0; j < local_size; j++)
        mpi->buffers[j] = blocks_peer(blocks, mpi->call->collective.receive, j);
    Chain chain = plan_chain(mpi, mpi->buffers);
    if (run_chain(&chain, err) != 0) return -1;
    // The host's closing barrier: all its ranks have finished with each other's buffers.
    return mpi_swap(mpi, mpi_scratch(mpi, (size_t)local_size), 1, local_size, TAG_DONE, err);
}
