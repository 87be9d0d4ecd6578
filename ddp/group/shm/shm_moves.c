/* shm_moves.c: the collectives of the shm backend: which rank copies or reduces what, between which
 * barriers.
 *
 * Eager, for contributions of up to EAGER_BYTES, such as a sum of losses: each lies beside its
 * rank's fingerprint, so the barrier that begins the call suffices. As in MPI's eager protocol, the
 * data are sent before the peers are known to run the same call.
 *
 * Direct, if all ranks' buffers have the same offset in one shared allocation. Two barriers enclose
 * it, nothing is copied in or out, and every byte crosses once:
 *
 *     all_reduce      each rank reduces one slice over all ranks' buffers and writes the sum to all
 *     reduce_scatter  each rank reduces its piece of all ranks' buffers into its own
 *     all_gather      each rank copies the other ranks' pieces (in place only)
 *
 * Staged, for private memory: per chunk, each rank writes its contribution into its mailbox; a
 * barrier; then each rank reads from all mailboxes. One barrier per chunk suffices, because
 * mailboxes are double-buffered: a half is overwritten two chunks later, and the barrier of the
 * chunk between happens after all ranks have read it.
 *
 * A send and its receive use a channel of their own per pair of ranks, without barriers.
 */
#include <string.h>

#include "ddp/group/buffer.h"
#include "ddp/group/reduce.h"
#include "ddp/group/shm/shm_internal.h"

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

// ---- contributions --------------------------------------------------------------------------

// A part of the collective's count that fits into one half of a mailbox, or beside a fingerprint.
typedef struct ShmChunk {
    size_t first, count, size; // elements, elements, bytes of an element
    int half;
    bool eager; // beside the fingerprint instead of in that half
} ShmChunk;

// Returns the begin of a rank's contribution.
static void *contribution(const PgShm *shm, int rank, const ShmChunk *chunk) {
    if (chunk->eager) return shm_fingerprint(shm, rank)->data;
    return &shm_mailbox(shm, rank)->data[chunk->half][0];
}

// Writes this rank's contribution: of [W, count], one piece per rank.
static void put(const PgShm *shm, const ShmChunk *chunk) {
    const Collective *c = &shm->call->collective;
    const size_t pieces = pg_sends_pieces(c->kind) ? (size_t)shm->world : 1;
    const bool from_root = c->kind == PG_SCATTER || c->kind == PG_BROADCAST;
    if (from_root && shm->rank != c->root) return;
    for (size_t p = 0; p < pieces; p++)
        buffer_copy(buffer_at(contribution(shm, shm->rank, chunk), p * chunk->count, chunk->size),
                    buffer_at(c->send, p * c->count + chunk->first, chunk->size),
                    chunk->count * chunk->size);
}

static void take_reduced(PgShm *shm, const ShmChunk *chunk, size_t piece) {
    const Collective *c = &shm->call->collective;
    size_t bytes = chunk->count * chunk->size;
    void *sources[PG_SHM_MAX_WORLD], *target = buffer_at(c->receive, chunk->first, chunk->size);
    for (int r = 0; r < shm->world; r++)
        sources[r] = buffer_at(contribution(shm, r, chunk), piece, bytes);
    reduce_in_rank_order(c->type, c->op, sources, shm->world, &target, 1, chunk->count);
    shm->moved += (size_t)(shm->world - 1) * bytes;
}

// Reads this rank's piece of each contribution to its receive buffer.
static void take(PgShm *shm, const ShmChunk *chunk) {
    const Collective *c = &shm->call->collective;
    const size_t piece = pg_sends_pieces(c->kind) ? (size_t)shm->rank : 0;
    const size_t bytes = chunk->count * chunk->size;
    if (pg_reduces(c->kind)) {
        if (c->kind != PG_REDUCE || shm->rank == c->root) take_reduced(shm, chunk, piece);
        return;
    }
    for (int r = 0; r < shm->world; r++) {
        const size_t first = pg_receives_pieces(c->kind) ? (size_t)r * c->count : 0;
        if (!pg_sends(c, r, shm->rank)) continue;
        buffer_copy(buffer_at(c->receive, first + chunk->first, chunk->size),
                    buffer_at(contribution(shm, r, chunk), piece, bytes), bytes);
        if (r != shm->rank) shm->moved += bytes;
    }
}

// ---- staged and eager -------------------------------------------------------------------------

// Elements of each piece that fit into `bytes`.
static size_t room_in(const PgShm *shm, size_t bytes) {
    const Collective *c = &shm->call->collective;
    return bytes / pg_type_bytes(c->type) / (pg_sends_pieces(c->kind) ? (size_t)shm->world : 1);
}

int shm_staged(PgShm *shm, Error *err) {
    const Collective *c = &shm->call->collective;
    const size_t size = pg_type_bytes(c->type), room = room_in(shm, MAILBOX_BYTES);
    for (size_t first = 0; first < c->count; first += room) {
        ShmChunk chunk = {.first = first,
                          .count = min_size(room, c->count - first),
                          .size = size,
                          .half = (int)(shm->turn++ & 1)};
        put(shm, &chunk);
        if (shm_barrier(shm, err) != 0) return -1;
        take(shm, &chunk);
    }
    return 0;
}

bool shm_is_eager(const PgShm *shm) {
    return shm->call->operation != PG_BARRIER &&
           shm->call->collective.count <= room_in(shm, EAGER_BYTES);
}

int shm_eager(PgShm *shm, Error *err) {
    const Collective *c = &shm->call->collective;
    const ShmChunk all = {.count = c->count, .size = pg_type_bytes(c->type), .eager = true};
    bool direct;
    put(shm, &all);
    if (shm_begin(shm, 0, 0, &direct, err) != 0) return -1;
    take(shm, &all);
    return 0;
}

// ---- direct ---------------------------------------------------------------------------------

// Reduces this rank's slice of all ranks' buffers, and writes it to all of them or to the root's.
// The slice of a reduce_scatter is piece `rank` of [W, count], which no other rank reads in this
// rank's buffer; its target is this rank's receive buffer.
static void reduce_slice(PgShm *shm) {
    const Collective *c = &shm->call->collective;
    const size_t size = pg_type_bytes(c->type), others = (size_t)shm->world - 1;
    const bool scatters = c->kind == PG_REDUCE_SCATTER, everywhere = c->kind == PG_ALL_REDUCE;
    const ReduceSlice mine = scatters ? (ReduceSlice){(size_t)shm->rank * c->count, c->count}
                                      : reduce_slice_of(c->type, c->count, shm->world, shm->rank);
    void *buffers[PG_SHM_MAX_WORLD], *own = c->receive;
    for (int r = 0; r < shm->world; r++)
        buffers[r] = buffer_at(shm_peer_memory(shm, c->send, r), mine.first, size);
    void *const *targets = everywhere ? buffers : scatters ? &own : &buffers[c->root];
    reduce_in_rank_order(c->type, c->op, buffers, shm->world, targets, everywhere ? shm->world : 1,
                         mine.count);
    const size_t written = everywhere ? others : (size_t)(!scatters && c->root != shm->rank);
    shm->moved += (others + written) * mine.count * size;
}

// Copies another rank's piece, with prefetching: its lines are in the other core's cache.
static void copy_from_peer(void *to, const void *from, size_t bytes) {
    enum { LINE = CACHE_LINE, AHEAD = 16 * LINE };
    const unsigned char *source = from;
    size_t done = 0;
    for (; done + LINE <= bytes; done += LINE) {
        __builtin_prefetch(source + done + AHEAD);
        __builtin_prefetch((unsigned char *)to + done + AHEAD, 1);
        memcpy((unsigned char *)to + done, source + done, LINE);
    }
    buffer_copy((unsigned char *)to + done, source + done, bytes - done);
}

// Copies the other ranks' pieces of [W, count]; this rank's is in place.
static void copy_pieces(PgShm *shm, size_t bytes) {
    void *mine = shm->call->collective.receive;
    for (int r = 0; r < shm->world; r++) {
        if (r == shm->rank) continue;
        copy_from_peer(buffer_at(mine, (size_t)r, bytes),
                       buffer_at(shm_peer_memory(shm, mine, r), (size_t)r, bytes), bytes);
        shm->moved += bytes;
    }
}

int shm_direct(PgShm *shm, Error *err) {
    const Collective *c = &shm->call->collective;
    size_t bytes = c->count * pg_type_bytes(c->type);
    switch (c->kind) {
    case PG_ALL_GATHER:
        copy_pieces(shm, bytes);
        break;
    case PG_BROADCAST:
        if (shm->rank == c->root) break;
        buffer_copy(c->receive, shm_peer_memory(shm, c->receive, c->root), bytes);
        shm->moved += bytes;
        break;
    default: // PG_ALL_REDUCE, PG_REDUCE, PG_REDUCE_SCATTER
        reduce_slice(shm);
    }
    return shm_barrier(shm, err);
}

// ---- pairs ----------------------------------------------------------------------------------

// End of the chunk that begins at `first`. An empty message has one chunk, too, because its count
// and type are compared.
static size_t chunk_end(size_t first, size_t bytes) {
    return first + min_size(CHANNEL_BYTES, bytes - first);
}

int shm_send(PgShm *shm, Error *err) {
    const Collective *c = &shm->call->collective;
    ShmChannel *channel = shm_channel(shm, shm->rank, c->root);
    size_t bytes = c->count * pg_type_bytes(c->type), done = 0;
    if (shm_check_abort(shm, err) != 0) return -1;
    do {
        uint32_t posted = sync_load(&channel->posted);
        // Waits until the next half, filled two chunks ago, has been read.
        if (shm_await(shm, c->root, &channel->taken, posted - 1, err) != 0) return -1;
        size_t end = chunk_end(done, bytes);
        channel->message[posted & 1] = (ShmMessage){.count = c->count, .type = (int32_t)c->type};
        buffer_copy(channel->data[posted & 1], buffer_at(c->send, done, 1), end - done);
        sync_store(&channel->posted, posted + 1);
        done = end;
    } while (done < bytes);
    shm->moved += bytes;
    return 0;
}

int shm_receive(PgShm *shm, Error *err) {
    const Collective *c = &shm->call->collective;
    ShmChannel *channel = shm_channel(shm, c->root, shm->rank);
    size_t bytes = c->count * pg_type_bytes(c->type), done = 0;
    if (shm_check_abort(shm, err) != 0) return -1;
    do {
        uint32_t taken = sync_load(&channel->taken);
        if (shm_await(shm, c->root, &channel->posted, taken + 1, err) != 0) return -1;
        const ShmMessage *message = &channel->message[taken & 1];
        if (pg_message_compare(shm->call, shm->rank, message->count, message->type, err) != 0)
            return -1;
        size_t end = chunk_end(done, bytes);
        buffer_copy(buffer_at(c->receive, done, 1), channel->data[taken & 1], end - done);
        sync_store(&channel->taken, taken + 1);
        done = end;
    } while (done < bytes);
    shm->moved += bytes;
    return 0;
}
