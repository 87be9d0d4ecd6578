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

static bool are_blocked(const PgMpi *mpi, int (*answers)[2]) {
    const int size = answers[0][1];
    for (int r = 0; r < mpi->world; r++)
        if (answers[r][1] != size || answers[r][0] != r / size * size) return false;
    return true;
}

// Sets hosts.blocked if the ranks of each host can map each other's memory. Ranks in two containers
// of one machine cannot, though MPI reports one host.
static int try_memory(PgMpi *mpi, Error *err) {
    Error refused = {0};
    PgCall joining = {.operation = PG_BARRIER,
                      .collective = pg_barrier(),
                      .deadline_ns = UINT64_MAX,
                      .timeout_s = mpi->timeout_s};
    mpi->call = &joining;
    MpiAllocation *probe = mpi_share(mpi, 1, &refused);
    int32_t mine = probe != NULL, all = 0;
    if (probe) segment_release(probe->segment);
    free(probe);
    mpi->call = NULL;
    if (MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT32_T, MPI_MIN, mpi->comm), err) != 0) return -1;
    mpi->hosts.blocked = all != 0;
    return 0;
}

int mpi_find_hosts(PgMpi *mpi, Error *err) {
    MpiHosts *hosts = &mpi->hosts;
    int(*answers)[2] = memory_zalloc((size_t)mpi->world * sizeof *answers);
    *hosts = (MpiHosts){.count = mpi->world, .host = mpi->rank, .local_size = 1};
    int status = find_local_ranks(mpi, answers, err);
    if (!status && are_blocked(mpi, answers) && answers[0][1] > 1) {
        const int size = answers[0][1];
        *hosts = (MpiHosts){.host = mpi->rank / size,
                            .count = mpi->world / size,
                            .local_rank = mpi->rank % size,
                            .local_size = size};
        status = try_memory(mpi, err);
    }
    free(answers);
    if (!hosts->blocked)
        *hosts = (MpiHosts){.count = mpi->world, .host = mpi->rank, .local_size = 1};
    return status;
}

// ---- shared memory -----------------------------------------------------------------------------

static void *block(const MpiAllocation *a, int local_rank) {
    return a->base + (size_t)local_rank * a->stride;
}

const MpiAllocation *mpi_find_allocation(const PgMpi *mpi, const void *buffer, size_t bytes) {
    uintptr_t begin = (uintptr_t)buffer;
    for (const MpiAllocation *a = mpi->allocations; a; a = a->next) {
        uintptr_t first = (uintptr_t)block(a, mpi->hosts.local_rank);
        if (begin >= first && begin - first < a->stride && bytes <= a->stride - (begin - first))
            return a;
    }
    return NULL;
}

// Sends `mine` to each other rank of the host, and gets theirs into theirs [local_size].
static int exchange_addresses(PgMpi *mpi, const SegmentAddress *mine, SegmentAddress *theirs,
                              Error *err) {
    for (int j = 0; j < mpi->hosts.local_size; j++) {
        int peer = rank_at(mpi, mpi->hosts.host, j);
        if (j == mpi->hosts.local_rank)
            theirs[j] = *mine;
        else if (mpi_post_receive(mpi, &theirs[j], sizeof *theirs, peer, TAG_SEGMENT, err) != 0 ||
                 mpi_post_send(mpi, mine, sizeof *mine, peer, TAG_SEGMENT, err) != 0)
            return -1;
    }
    return mpi_wait(mpi, err);
}

// The host's first rank creates the segment and announces it; the others attach and confirm.
static PgShmSegment *open_segment(PgMpi *mpi, size_t bytes, SegmentAddress *mine,
                                  SegmentAddress *theirs, Error *err) {
    const bool makes = mpi->hosts.local_rank == 0;
    PgShmSegment *segment = makes ? segment_create(bytes, err) : NULL;
    *mine = (SegmentAddress){.pid = segment ? getpid() : 0, .fd = segment ? segment->fd : 0};
    if (exchange_addresses(mpi, mine, theirs, err) != 0) return segment;
    if (!makes && theirs[0].pid != 0)
        segment = segment_open((int)theirs[0].pid, (int)theirs[0].fd, bytes, err);
    *mine = (SegmentAddress){.pid = segment != NULL};
    if (exchange_addresses(mpi, mine, theirs, err) != 0) return segment;
    for (int j = 0; j < mpi->hosts.local_size; j++)
        if (theirs[j].pid == 0)
            error_set(err, STATUS_FAILED, "rank %d cannot map the memory of rank %d",
                      rank_at(mpi, mpi->hosts.host, j), rank_at(mpi, mpi->hosts.host, 0));
    return segment;
}

MpiAllocation *mpi_share(PgMpi *mpi, size_t bytes, Error *err) {
    const size_t stride = segment_whole_pages(bytes);
    const size_t whole = stride * (size_t)mpi->hosts.local_size;
    SegmentAddress *addresses =
        memory_zalloc(((size_t)mpi->hosts.local_size + 1) * sizeof *addresses);
    Error error = {0};
    mpi->count = 0;
    PgShmSegment *segment = open_segment(mpi, whole, &addresses[0], &addresses[1], &error);
    if (error.status != STATUS_OK) {
        // The addresses are not freed: messages into them may be in flight.
        segment_release(segment);
        error_set(err, error.status, "%s", error.message);
        return NULL;
    }
    free(addresses);
    segment_seal(segment); // all have opened it
    MpiAllocation *a = memory_zalloc(sizeof *a);
    *a = (MpiAllocation){.segment = segment, .base = segment->base, .stride = stride};
    memset(block(a, mpi->hosts.local_rank), 0, stride);
    return a;
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

static size_t chunk_first(const Chain *chain, int c) {
    return (size_t)c * chain->chunk;
}

static size_t chunk_count(const Chain *chain, int c) {
    size_t left = chain->count - chunk_first(chain, c);
    return left < chain->chunk ? left : chain->chunk;
}

static void *chunk_in(const Chain *chain, const void *buffer, int c) {
    return (unsigned char *)buffer + (chain->first + chunk_first(chain, c)) * chain->size;
}

static void *chunk_partial(const Chain *chain, int c) {
    return chain->partial + chunk_first(chain, c) * chain->size;
}

static void *chunk_own(const Chain *chain, int c) {
    return chunk_in(chain, chain->buffers[chain->mpi->hosts.local_rank], c);
}

static int chunk_bytes(const Chain *chain, int c) {
    return (int)(chunk_count(chain, c) * chain->size);
}

static int send_chunk(const Chain *chain, int c, const void *data, int first, int tag, Error *err) {
    PgMpi *mpi = chain->mpi;
    return MPI(MPI_Isend(data, chunk_bytes(chain, c), MPI_BYTE, mpi->peers[first], tag, mpi->comm,
                         &mpi->requests[first + c]),
               err);
}

static int receive_chunk(const Chain *chain, int c, void *data, int first, int tag, Error *err) {
    PgMpi *mpi = chain->mpi;
    mpi->moved += (size_t)chunk_bytes(chain, c);
    return MPI(MPI_Irecv(data, chunk_bytes(chain, c), MPI_BYTE, mpi->peers[first], tag, mpi->comm,
                         &mpi->requests[first + c]),
               err);
}

// Copies a complete chunk from this rank's buffer to the other ranks of the host, and sends it to
// the previous host.
static int finish_chunk(Chain *chain, int c, Error *err) {
    const PgMpi *mpi = chain->mpi;
    const void *own = chunk_own(chain, c);
    for (int j = 0; j < mpi->hosts.local_size; j++)
        if (j != mpi->hosts.local_rank)
            memcpy(chunk_in(chain, chain->buffers[j], c), own, (size_t)chunk_bytes(chain, c));
    chain->returned++;
    if (mpi->hosts.host == 0) return 0;
    return send_chunk(chain, c, own, chain->on, TAG_RESULT, err);
}

// Adds this host's ranks to the partial sum of a chunk, and sends it to the next host; the last
// host completes it.
static int add_chunk(Chain *chain, int c, Error *err) {
    PgMpi *mpi = chain->mpi;
    const bool last = mpi->hosts.host + 1 == mpi->hosts.count;
    const size_t count = chunk_count(chain, c);
    void *partial = chunk_partial(chain, c), *target = last ? chunk_own(chain, c) : partial;
    int sources = 0;
    if (mpi->hosts.host > 0) mpi->sources[sources++] = partial;
    for (int j = 0; j < mpi->hosts.local_size; j++)
        mpi->sources[sources++] = chunk_in(chain, chain->buffers[j], c);
    reduce_in_rank_order(chain->type, chain->op, mpi->sources, sources, &target, 1, count);
    chain->added++;
    if (!last)
        return send_chunk(chain, c, partial, chain->out, TAG_DATA, err) != 0 ||
                       receive_chunk(chain, c, chunk_own(chain, c), chain->back, TAG_RESULT, err)
                   ? -1
                   : 0;
    if (mpi->call->collective.op == PG_AVG) reduce_scale(chain->type, target, mpi->world, count);
    return finish_chunk(chain, c, err);
}

// Polls a request. An inactive request counts as done.
static int test(const PgMpi *mpi, int request, int *done, Error *err) {
    return MPI(MPI_Test(&mpi->requests[request], done, MPI_STATUS_IGNORE), err);
}

// Processes the next received chunk of each direction. *moved: there was one.
static int advance(Chain *chain, bool *moved, Error *err) {
    const PgMpi *mpi = chain->mpi;
    int done = 0;
    *moved = false;
    if (chain->added < chain->chunks) {
        if (test(mpi, chain->in + chain->added, &done, err) != 0) return -1;
        if (done && add_chunk(chain, chain->added, err) != 0) return -1;
        *moved = done;
    }
    if (chain->returned < chain->added) {
        if (test(mpi, chain->back + chain->returned, &done, err) != 0) return -1;
        if (done && finish_chunk(chain, chain->returned, err) != 0) return -1;
        *moved = *moved || done;
    }
    return 0;
}

static int run_chain(Chain *chain, Error *err) {
    PgMpi *mpi = chain->mpi;
    for (int c = 0; mpi->hosts.host > 0 && c < chain->chunks; c++)
        if (receive_chunk(chain, c, chunk_partial(chain, c), chain->in, TAG_DATA, err) != 0)
            return -1;
    while (chain->returned < chain->chunks) {
        bool moved;
        if (advance(chain, &moved, err) != 0) return -1;
        if (moved) continue;
        if (mpi_check(mpi, err) != 0) return -1;
        mpi_nap();
    }
    return mpi_wait(mpi, err); // what was sent
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

// The closing barrier of the host: returns when all its ranks have finished with each other's
// buffers.
static int host_barrier(PgMpi *mpi, Error *err) {
    static const char done = 1;
    char *theirs = mpi_scratch(mpi, (size_t)mpi->hosts.local_size);
    for (int j = 0; j < mpi->hosts.local_size; j++) {
        int peer = rank_at(mpi, mpi->hosts.host, j);
        if (peer == mpi->rank) continue;
        if (mpi_post_receive(mpi, &theirs[j], 1, peer, TAG_DONE, err) != 0 ||
            mpi_post_send(mpi, &done, 1, peer, TAG_DONE, err) != 0)
            return -1;
    }
    return mpi_wait(mpi, err);
}

int mpi_host_all_reduce(PgMpi *mpi, const MpiAllocation *a, Error *err) {
    const Collective *c = &mpi->call->collective;
    const size_t offset =
        (size_t)((unsigned char *)c->receive - (unsigned char *)block(a, mpi->hosts.local_rank));
    void **buffers = mpi->buffers;
    for (int j = 0; j < mpi->hosts.local_size; j++)
        buffers[j] = (unsigned char *)block(a, j) + offset;
    Chain chain = plan_chain(mpi, buffers);
    if (run_chain(&chain, err) != 0) return -1;
    return host_barrier(mpi, err);
}
