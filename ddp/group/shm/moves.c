/* moves.c: the collectives of the shm backend: who copies or adds what, between which
 * barriers.
 *
 * Direct, when all ranks' buffers lie at the same place of a shared allocation: each rank adds up
 * one slice over all ranks' buffers and writes the sum back to all of them. Every byte crosses
 * once, nothing is copied in or out, and two barriers enclose it. A reduce_scatter adds up its
 * piece of all ranks' and keeps it; an all_gather in place copies the others' pieces.
 *
 * Staged, for private memory: chunk by chunk, each rank puts what it contributes into its mailbox;
 * a barrier; then each takes what it needs from all mailboxes. A mailbox has two halves, used in
 * turn, so one barrier per chunk is enough: a half is written again two chunks later, and the
 * barrier of the chunk between proves that all have read it.
 *
 * Sends and receives go through a channel of their own per pair of ranks, and meet nobody else.
 */
#include <string.h>

#include "ddp/group/reduce.h"
#include "ddp/group/shm/internal.h"

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

// Arithmetic on buffers of elements whose size is known at run time only.
static void *at(const void *buffer, size_t element, size_t element_bytes) {
    return (unsigned char *)buffer + element * element_bytes;
}

// In place, a buffer may be its own target; an empty one may be NULL.
static void copy(void *to, const void *from, size_t bytes) {
    if (bytes > 0 && to != from) memcpy(to, from, bytes);
}

// ---- staged ---------------------------------------------------------------------------------

// A part of the collective's count that fits into a half of a mailbox.
typedef struct Chunk {
    size_t first, count, size; // elements, elements, bytes of an element
    int half;
} Chunk;

static unsigned char *half_of(const PgShm *shm, int rank, const Chunk *chunk) {
    return shm_mailbox(shm, rank)->data[chunk->half];
}

// Puts one piece for each rank, as cut from send [W, count], into this rank's mailbox [W, chunk].
static void put_pieces(const PgShm *shm, const Chunk *chunk) {
    const Collective *c = &shm->call->collective;
    for (size_t r = 0; r < (size_t)shm->world; r++)
        copy(at(half_of(shm, shm->rank, chunk), r * chunk->count, chunk->size),
             at(c->send, r * c->count + chunk->first, chunk->size), chunk->count * chunk->size);
}

static void put(const PgShm *shm, const Chunk *chunk) {
    const Collective *c = &shm->call->collective;
    bool is_root = shm->rank == c->root;
    switch (c->kind) {
    case PG_SCATTER:
        if (is_root) put_pieces(shm, chunk);
        break;
    case PG_REDUCE_SCATTER:
        put_pieces(shm, chunk);
        break;
    case PG_BROADCAST:
        if (!is_root) break;
        // fall through - the root shows its chunk like everybody else in the other collectives
    default:
        copy(half_of(shm, shm->rank, chunk), at(c->send, chunk->first, chunk->size),
             chunk->count * chunk->size);
    }
}

static void take_copy(PgShm *shm, const Chunk *chunk, int from, size_t piece, void *to) {
    size_t bytes = chunk->count * chunk->size;
    copy(to, half_of(shm, from, chunk) + piece * bytes, bytes);
    if (from != shm->rank) shm->moved += bytes;
}

static void take_reduced(PgShm *shm, const Chunk *chunk, size_t piece) {
    const Collective *c = &shm->call->collective;
    size_t bytes = chunk->count * chunk->size;
    void *sources[PG_SHM_MAX_WORLD], *target = at(c->receive, chunk->first, chunk->size);
    for (int r = 0; r < shm->world; r++) sources[r] = half_of(shm, r, chunk) + piece * bytes;
    reduce_in_rank_order(c->type, c->op, sources, shm->world, &target, 1, chunk->count);
    shm->moved += (size_t)(shm->world - 1) * bytes;
}

static void take(PgShm *shm, const Chunk *chunk) {
    const Collective *c = &shm->call->collective;
    bool is_root = shm->rank == c->root;
    void *mine = at(c->receive, chunk->first, chunk->size);
    switch (c->kind) {
    case PG_ALL_REDUCE:
        take_reduced(shm, chunk, 0);
        break;
    case PG_REDUCE:
        if (is_root) take_reduced(shm, chunk, 0);
        break;
    case PG_REDUCE_SCATTER:
        take_reduced(shm, chunk, (size_t)shm->rank);
        break;
    case PG_BROADCAST:
        if (!is_root) take_copy(shm, chunk, c->root, 0, mine);
        break;
    case PG_SCATTER:
        take_copy(shm, chunk, c->root, (size_t)shm->rank, mine);
        break;
    case PG_GATHER:
        if (!is_root) break;
        // fall through - the root gathers as everybody does in all_gather
    default: // PG_ALL_GATHER; a barrier has no chunks
        for (int r = 0; r < shm->world; r++)
            take_copy(shm, chunk, r, 0, at(mine, (size_t)r * c->count, chunk->size));
    }
}

int shm_staged(PgShm *shm, Error *err) {
    const Collective *c = &shm->call->collective;
    bool in_pieces = c->kind == PG_SCATTER || c->kind == PG_REDUCE_SCATTER;
    size_t size = pg_type_bytes(c->type);
    size_t room = MAILBOX_BYTES / size / (in_pieces ? (size_t)shm->world : 1);
    for (size_t first = 0; first < c->count; first += room) {
        Chunk chunk = {.first = first,
                       .count = min_size(room, c->count - first),
                       .size = size,
                       .half = (int)(shm->turn++ & 1)};
        put(shm, &chunk);
        if (shm_barrier(shm, err) != 0) return -1;
        take(shm, &chunk);
    }
    return 0;
}

// ---- direct ---------------------------------------------------------------------------------

// Adds up slice `rank` of all ranks' buffers. Slices are cut at cache lines, so that no two ranks
// write the same line; the last rank also takes the rest.
static void reduce_slice(PgShm *shm) {
    const Collective *c = &shm->call->collective;
    size_t size = pg_type_bytes(c->type), world = (size_t)shm->world, rank = (size_t)shm->rank;
    size_t line = CACHE_LINE / size, slice = c->count / line / world * line;
    size_t first = rank * slice, count = rank + 1 == world ? c->count - first : slice;
    void *buffers[PG_SHM_MAX_WORLD];
    for (int r = 0; r < shm->world; r++)
        buffers[r] = at(shm_peer_buffer(shm, c->receive, r), first, size);
    bool everywhere = c->kind == PG_ALL_REDUCE;
    reduce_in_rank_order(c->type, c->op, buffers, shm->world,
                         everywhere ? buffers : &buffers[c->root], everywhere ? shm->world : 1,
                         count);
    size_t written = everywhere ? world - 1 : (size_t)(c->root != shm->rank);
    shm->moved += (world - 1 + written) * count * size;
}

// Adds up piece `rank` of all ranks' [W, count]: nobody else reads that piece of this rank's.
static void reduce_piece(PgShm *shm, size_t bytes) {
    const Collective *c = &shm->call->collective;
    void *pieces[PG_SHM_MAX_WORLD], *target = c->receive;
    for (int r = 0; r < shm->world; r++)
        pieces[r] = at(shm_peer_buffer(shm, c->send, r), (size_t)shm->rank, bytes);
    reduce_in_rank_order(c->type, c->op, pieces, shm->world, &target, 1, c->count);
    shm->moved += (size_t)(shm->world - 1) * bytes;
}

// Copies to this rank what another has just written: far away, so it is asked for ahead of time.
static void copy_from_peer(void *to, const void *from, size_t bytes) {
    enum { LINE = CACHE_LINE, AHEAD = 16 * LINE };
    const unsigned char *source = from;
    size_t done = 0;
    for (; done + LINE <= bytes; done += LINE) {
        __builtin_prefetch(source + done + AHEAD);
        __builtin_prefetch((unsigned char *)to + done + AHEAD, 1);
        memcpy((unsigned char *)to + done, source + done, LINE);
    }
    copy((unsigned char *)to + done, source + done, bytes - done);
}

// Each rank's piece lies where it belongs already, in that rank's [W, count].
static void copy_pieces(PgShm *shm, size_t bytes) {
    void *mine = shm->call->collective.receive;
    for (int r = 0; r < shm->world; r++) {
        if (r == shm->rank) continue;
        copy_from_peer(at(mine, (size_t)r, bytes),
                       at(shm_peer_buffer(shm, mine, r), (size_t)r, bytes), bytes);
        shm->moved += bytes;
    }
}

int shm_direct(PgShm *shm, Error *err) {
    const Collective *c = &shm->call->collective;
    size_t bytes = c->count * pg_type_bytes(c->type);
    switch (c->kind) {
    case PG_REDUCE_SCATTER:
        reduce_piece(shm, bytes);
        break;
    case PG_ALL_GATHER:
        copy_pieces(shm, bytes);
        break;
    case PG_BROADCAST:
        if (shm->rank == c->root) break;
        copy(c->receive, shm_peer_buffer(shm, c->receive, c->root), bytes);
        shm->moved += bytes;
        break;
    default: // PG_ALL_REDUCE, PG_REDUCE
        reduce_slice(shm);
    }
    return shm_barrier(shm, err);
}

// ---- pairs ----------------------------------------------------------------------------------

// A message is one chunk or more, also when it is empty: the count and type must be compared.
static size_t chunk_end(size_t first, size_t bytes) {
    return first + min_size(CHANNEL_BYTES, bytes - first);
}

int shm_send(PgShm *shm, Error *err) {
    const Collective *c = &shm->call->collective;
    Channel *channel = shm_channel(shm, shm->rank, c->root);
    size_t bytes = c->count * pg_type_bytes(c->type), done = 0;
    if (shm_check_abort(shm, err) != 0) return -1;
    do {
        uint32_t posted = sync_load(&channel->posted);
        // The half that comes next was filled two chunks ago.
        if (shm_await(shm, c->root, &channel->taken, posted - 1, err) != 0) return -1;
        size_t end = chunk_end(done, bytes);
        channel->message[posted & 1] = (Message){.count = c->count, .type = (int32_t)c->type};
        copy(channel->data[posted & 1], at(c->send, done, 1), end - done);
        sync_store(&channel->posted, posted + 1);
        done = end;
    } while (done < bytes);
    shm->moved += bytes;
    return 0;
}

int shm_receive(PgShm *shm, Error *err) {
    const Collective *c = &shm->call->collective;
    Channel *channel = shm_channel(shm, c->root, shm->rank);
    size_t bytes = c->count * pg_type_bytes(c->type), done = 0;
    if (shm_check_abort(shm, err) != 0) return -1;
    do {
        uint32_t taken = sync_load(&channel->taken);
        if (shm_await(shm, c->root, &channel->posted, taken + 1, err) != 0) return -1;
        const Message *message = &channel->message[taken & 1];
        if (pg_message_compare(shm->call, shm->rank, message->count, message->type, err) != 0)
            return -1;
        size_t end = chunk_end(done, bytes);
        copy(at(c->receive, done, 1), channel->data[taken & 1], end - done);
        sync_store(&channel->taken, taken + 1);
        done = end;
    } while (done < bytes);
    shm->moved += bytes;
    return 0;
}
