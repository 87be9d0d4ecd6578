/* pg_shm.c: the shm backend: opening groups, shared allocations, and the backend's table. The
 * layout and the safety rule are in shm_internal.h, the algorithms in shm_moves.c.
 *
 * Groups of processes and groups of threads differ in two points: how another rank's segment is
 * found (through /proc, or by its pointer), and whether a rank can die alone.
 */
#include "ddp/group/shm/pg_shm.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "ddp/group/backends.h"
#include "ddp/group/shm/shm_internal.h"

// ---- the control segment --------------------------------------------------------------------

static size_t mailboxes_offset(int world) {
    return segment_whole_pages(sizeof(ShmControl) + (size_t)world * sizeof(RankSlot));
}

static size_t channels_offset(int world) {
    return mailboxes_offset(world) + (size_t)world * sizeof(ShmMailbox);
}

// The kernel allocates pages on the first write: unused channels cost nothing.
static size_t control_bytes(int world) {
    return segment_whole_pages(channels_offset(world) +
                               (size_t)world * (size_t)world * sizeof(ShmChannel));
}

ShmMailbox *shm_mailbox(const PgShm *shm, int rank) {
    return (ShmMailbox *)(void *)(shm->segment->base + mailboxes_offset(shm->world)) + rank;
}

ShmChannel *shm_channel(const PgShm *shm, int from, int to) {
    ShmChannel *channels = (ShmChannel *)(void *)(shm->segment->base + channels_offset(shm->world));
    return &channels[from * shm->world + to];
}

static PgShmSegment *create_control(int world, Error *err) {
    uint64_t nonce;
    if (world < 1 || world > PG_SHM_MAX_WORLD)
        return error_null(err, STATUS_USAGE, "the shm backend is for 1 to %d ranks, not %d",
                          PG_SHM_MAX_WORLD, world);
    if (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return error_null(err, STATUS_FAILED, "getrandom gave no random bytes");
    PgShmSegment *segment = segment_create(control_bytes(world), err);
    if (!segment) return NULL;
    ShmControl *control = (ShmControl *)(void *)segment->base;
    control->nonce = nonce;
    control->slot_bytes = sizeof *control->slots;
    control->world = world;
    return segment;
}

static int shm_create(PgEndpoint *endpoint, Error *err) {
    PgShmSegment *segment = endpoint->found = create_control(endpoint->world, err);
    if (!segment) return -1;
    const ShmControl *control = (const ShmControl *)(void *)segment->base;
    snprintf(endpoint->address, PG_ADDRESS_MAX, "/proc/%d/fd/%d %016" PRIx64, (int)getpid(),
             segment->fd, control->nonce);
    return 0;
}

// Opens the segment of rank 0; fails if there is none, or not this group's.
static int shm_reach(PgEndpoint *endpoint, Error *err) {
    const char *address = endpoint->address;
    const int world = endpoint->world;
    int pid, fd, length = 0;
    uint64_t nonce;
    if (sscanf(address, "/proc/%d/fd/%d %16" SCNx64 "%n", &pid, &fd, &nonce, &length) != 3 ||
        address[length] != '\0')
        return error_set(err, STATUS_FAILED, "\"%.80s\" is not the address of an shm group",
                         address);
    PgShmSegment *segment = endpoint->found = segment_open(pid, fd, 0, err);
    if (!segment) return -1;
    const ShmControl *control = (const ShmControl *)(void *)segment->base;
    const char *wrong = NULL;
    if (segment->bytes < sizeof *control || control->nonce != nonce)
        wrong = "it is the memory of something else";
    else if (control->world != world)
        wrong = "it is a group of another size";
    else if (control->slot_bytes != sizeof *control->slots ||
             segment->bytes != control_bytes(world))
        wrong = "it was made by another version of this program";
    if (!wrong) return 0;
    endpoint->found = NULL;
    segment_release(segment);
    return error_set(err, STATUS_FAILED, "cannot join the shm group at %s: %s", address, wrong);
}

// ---- shared allocations ---------------------------------------------------------------------

void *shm_peer_memory(void *state, const void *buffer, int rank) {
    const PgShm *shm = state;
    const SharedBlocks *blocks = blocks_find(shm->allocations, buffer, 0);
    CHECK(blocks, "buffer %p is in no shared allocation", buffer);
    return blocks_peer(blocks, buffer, rank);
}

// Shares a segment: *segment, on the rank that has created it, which announces it to the other
// ranks. They open it after the barrier if `opens`. Race-free: between shm_begin and that barrier
// no rank reads the announcement.
static int share_segment(PgShm *shm, PgShmSegment **segment, bool opens, size_t bytes, Error *err) {
    ShmControl *control = shm->control;
    const bool created = *segment;
    if (created) {
        control->pid = (int)getpid();
        control->fd = (*segment)->fd;
        if (shm->threads) segment_announce(shm->segment, *segment);
    }
    if (shm_barrier(shm, err) != 0) {
        if (created) segment_release(*segment);
        return -1;
    }
    if (created || !opens) return 0;
    Error own = {0};
    *segment = shm->threads ? segment_share(shm->segment->announced)
                            : segment_open(control->pid, control->fd, bytes, &own);
    if (*segment) return 0;
    // If another rank has failed first, that error is the cause: the creator may have left.
    return shm_check_abort(shm, err) != 0 ? -1 : error_set(err, own.status, "%s", own.message);
}

static void *shm_shared_alloc(void *state, const PgCall *call, Error *err) {
    PgShm *shm = state;
    PgShmSegment *segment = NULL;
    const bool creates = shm->rank == 0;
    const size_t world = (size_t)shm->world, stride = segment_whole_pages(call->collective.count);
    bool direct;
    shm_enter(shm, call);
    if (shm_begin(shm, 0, 0, &direct, err) != 0) return NULL;
    if (stride > (SIZE_MAX >> 1) / world)
        return error_null(err, STATUS_FAILED, "shared memory: the size overflows");
    if (creates && !(segment = segment_create(stride * world, err))) return NULL;
    if (share_segment(shm, &segment, true, stride * world, err) != 0) return NULL;
    const SharedBlocks *blocks = blocks_add(&shm->allocations, (SharedBlocks){.id = call->sequence,
                                                                              .segment = segment,
                                                                              .base = segment->base,
                                                                              .stride = stride,
                                                                              .rank = shm->rank});
    // First touch: writing this rank's block places its pages on this rank's NUMA node. Then maps
    // the other ranks' pages, so that no training step takes page faults.
    if (!call->dry) memset(blocks_own(blocks), 0, stride);
    if (shm_barrier(shm, err) != 0) return NULL;
    if (creates) segment_seal(segment); // all have opened it
#ifdef MADV_POPULATE_WRITE              // Linux 5.14; before, the first step takes the faults
    if (!shm->threads && !call->dry) madvise(segment->base, segment->bytes, MADV_POPULATE_WRITE);
#endif
    shm_finish(shm);
    return blocks_own(blocks);
}

// ---- the backend ----------------------------------------------------------------------------

// Whether this rank writes its sum where no other rank reads: into its own piece, or outside of
// send.
static bool keeps_to_itself(const PgShm *shm, const Collective *c, size_t bytes) {
    const unsigned char *send = c->send, *receive = c->receive;
    size_t world = (size_t)shm->world;
    return receive == send + (size_t)shm->rank * bytes || receive + bytes <= send ||
           receive >= send + world * bytes;
}

// Returns the buffer of this rank that the other ranks access in a direct collective, and its size
// in *bytes; NULL: the collective has no direct form.
static const void *direct_buffer(const PgShm *shm, const Collective *c, size_t *bytes) {
    const unsigned char *send = c->send;
    size_t own = c->count * pg_type_bytes(c->type);
    bool in_pieces = c->kind == PG_REDUCE_SCATTER || c->kind == PG_ALL_GATHER;
    *bytes = in_pieces ? own * (size_t)shm->world : own;
    if (*bytes == 0) return NULL;
    if (c->kind == PG_REDUCE_SCATTER) return keeps_to_itself(shm, c, own) ? send : NULL;
    if (c->kind == PG_ALL_GATHER)
        return send == (unsigned char *)c->receive + (size_t)shm->rank * own ? c->receive : NULL;
    return c->kind == PG_ALL_REDUCE || c->kind == PG_BROADCAST || c->kind == PG_REDUCE ? c->receive
                                                                                       : NULL;
}

// Waits for all ranks. *direct is shm_begin's.
static int meet(PgShm *shm, PgCall *call, bool *direct, Error *err) {
    size_t bytes;
    const void *buffer = direct_buffer(shm, &call->collective, &bytes);
    const SharedBlocks *b = buffer ? blocks_find(shm->allocations, buffer, bytes) : NULL;
    if (shm_begin(shm, b ? b->id : 0, b ? blocks_offset(b, buffer) : 0, direct, err) != 0)
        return -1;
    if (call->on_link) call->met_ns = clock_ns();
    return 0;
}

static int shm_run(void *state, PgCall *call, uint64_t *moved, Error *err) {
    PgShm *shm = state;
    int status;
    bool direct;
    shm->moved = 0;
    if (call->operation == PG_SEND || call->operation == PG_RECV) {
        shm->call = call;
        status = call->operation == PG_SEND ? shm_send(shm, err) : shm_receive(shm, err);
    } else {
        shm_enter(shm, call);
        if (shm_is_eager(shm))
            status = shm_eager(shm, err);
        else if ((status = meet(shm, call, &direct, err)) == 0 && call->operation != PG_BARRIER)
            status = direct ? shm_direct(shm, err) : shm_staged(shm, err);
        if (status == 0) shm_finish(shm);
    }
    *moved += shm->moved;
    return status;
}

static PgShm *attach_rank(PgShmSegment *segment, int rank, bool threads) {
    PgShm *shm = memory_zalloc(sizeof *shm);
    shm->segment = segment;
    shm->control = (ShmControl *)(void *)segment->base;
    shm->rank = rank;
    shm->world = shm->control->world;
    shm->threads = threads;
    shm->spins = shm->world > get_nprocs() ? SYNC_SPINS_CROWDED : SYNC_SPINS;
    RankSlot *slot = &shm->control->slots[rank];
    sync_store(&slot->pid, (uint32_t)getpid());
    sync_store(&slot->presence, RANK_PRESENT);
    return shm;
}

static void shm_close(void *state) {
    PgShm *shm = state;
    sync_store(&shm->control->slots[shm->rank].presence, RANK_CLOSED);
    blocks_free(&shm->allocations);
    segment_release(shm->segment);
    free(shm);
}

// The first member creates the control segment, the others attach to it. Ranks outside take part in
// the barriers only. The last barrier means that all members have attached.
static int shm_new_subgroup(void *state, const PgCall *call, void **member, Error *err) {
    PgShm *shm = state;
    PgShmSegment *segment = NULL;
    const uint64_t members = call->collective.count;
    const int count = pg_member_count(members), own_rank = pg_member_rank(members, shm->rank);
    bool direct;
    shm_enter(shm, call);
    if (shm_begin(shm, 0, 0, &direct, err) != 0) return -1;
    if (own_rank == 0 && !(segment = create_control(count, err))) return -1;
    if (share_segment(shm, &segment, own_rank >= 0, control_bytes(count), err) != 0) return -1;
    PgShm *own = segment ? attach_rank(segment, own_rank, shm->threads) : NULL;
    if (shm_barrier(shm, err) != 0) {
        if (own) shm_close(own);
        return -1;
    }
    if (own_rank == 0) segment_seal(segment);
    shm_finish(shm);
    *member = own;
    return 0;
}

static const PgBackend backend_shm = {.name = "shm",
                                      .run = shm_run,
                                      .shared_alloc = shm_shared_alloc,
                                      .peer_memory = shm_peer_memory,
                                      .new_subgroup = shm_new_subgroup,
                                      .abort = shm_abort,
                                      .close = shm_close};

// ---- groups ---------------------------------------------------------------------------------

static int check_rank(PgShmSegment *segment, int rank, Error *err) {
    ShmControl *control = (ShmControl *)(void *)segment->base;
    if (rank < 0 || rank >= control->world)
        return error_set(err, STATUS_USAGE, "rank %d: the group has %d rank%s", rank,
                         control->world, format_s((size_t)control->world));
    if (sync_load(&control->slots[rank].presence) != RANK_ABSENT)
        return error_set(err, STATUS_FAILED, "two processes are rank %d: %d and %d", rank,
                         (int)sync_load(&control->slots[rank].pid), (int)getpid());
    return 0;
}

// Waits until all ranks have attached.
static ProcessGroup *shm_open_group(PgEndpoint *endpoint, Error *err) {
    PgShmSegment *segment = endpoint->found;
    const PgOptions *options = endpoint->options;
    const int rank = endpoint->rank;
    endpoint->found = NULL;
    if (check_rank(segment, rank, err) != 0) {
        segment_release(segment);
        return NULL;
    }
    PgShm *shm = attach_rank(segment, rank, false);
    PgCall joining = {.operation = PG_BARRIER,
                      .deadline_ns = clock_ns_after(options->timeout_s),
                      .timeout_s = options->timeout_s};
    shm->call = &joining;
    Error error = {0};
    int status = shm_check_abort(shm, &error);
    if (!status) status = shm_barrier(shm, &error);
    segment_seal(segment); // all ranks have attached
    ProcessGroup *group =
        status ? NULL : pg_new(&backend_shm, shm, rank, shm->world, options, &error);
    if (group) return group;
    shm_abort(shm, error.message);
    shm_close(shm);
    return error_null(err, error.status, "%s", error.message);
}

static void shm_release(PgEndpoint *endpoint) {
    segment_release(endpoint->found);
}

const PgOpener pg_opener_shm = {.name = "shm",
                                .built = true,
                                .one_system = true,
                                .create = shm_create,
                                .reach = shm_reach,
                                .open = shm_open_group,
                                .release = shm_release};

int pg_shm_threads(int world, const PgOptions *options, ProcessGroup **groups, Error *err) {
    PgShmSegment *segment = create_control(world, err);
    if (!segment) return -1;
    segment_seal(segment);
    PgShm *ranks[PG_SHM_MAX_WORLD];
    for (int r = 0; r < world; r++)
        ranks[r] = attach_rank(r == 0 ? segment : segment_share(segment), r, true);
    int status = 0;
    for (int r = 0; r < world; r++) {
        groups[r] = pg_new(&backend_shm, ranks[r], r, world, options, err);
        if (groups[r]) continue;
        shm_close(ranks[r]);
        status = -1;
    }
    for (int r = 0; r < world && status; r++) pg_close(groups[r]);
    return status;
}
