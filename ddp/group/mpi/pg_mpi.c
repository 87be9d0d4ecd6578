/* pg_mpi.c: the mpi backend: process groups whose ranks are MPI's: processes on several machines.
 *
 * MPI starts the ranks (mpirun, or srun with MPI's plugin) and connects them:
 *
 *     prepare  starts MPI unless it runs already, and checks that this process is one of `world`
 *              ranks that one mpirun, or srun, of this build's MPI started
 *     tell     broadcasts rank 0's text before there is a group
 *     open     creates a communicator for the first `world` ranks
 *
 * prepare and tell end the process if MPI does not return in time.
 *
 * Sums are taken in rank order, with the functions of ddp/group/reduce.h, so they equal shm's and
 * DataParallel's bit for bit. MPI_Allreduce's do not, because its order is unspecified;
 * pg_use_fast_sums (process_group.h) selects it.
 *
 * Waits poll MPI and sleep 50 us between two polls. Blocking inside MPI would spin on a core, and
 * slow down the computation that communication should overlap with.
 *
 * Failures: a rank that breaks the group sends the error to all others, in a message with its own
 * tag. (nccl uses a key in the store. MPI's ranks need the store for rendezvous only, and its host
 * may be gone.) Each receiver appends for which ranks it waits itself, because the first rank to
 * time out may have waited for a rank that waits for the lost one. A rank behind a dead connection
 * ends at its own deadline. MPI cannot continue then: a process with a broken group that does not
 * end by itself within LINGER_S is ended by MPI_Abort or else by _exit. A process that ends
 * normally calls MPI_Finalize at exit, which waits for the other ranks for at most the timeout_s of
 * prepare.
 *
 * A build without MPI compiles mpi_absent.c instead of the other files.
 */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/group/backends.h"
#include "ddp/group/mpi/mpi_internal.h"

// ---- a call ------------------------------------------------------------------------------------

static int run_together(PgMpi *mpi, PgCall *call, Error *err) {
    const Collective *c = &call->collective;
    const size_t bytes = c->count * pg_type_bytes(c->type);
    const bool shares = c->kind == PG_ALL_REDUCE && bytes > 0 && mpi->hosts.blocked && !mpi->fast;
    const SharedBlocks *b = shares ? blocks_find(mpi->allocations, c->receive, bytes) : NULL;
    const size_t offset = b ? blocks_offset(b, c->receive) : 0;
    bool direct;
    if (mpi_meet(mpi, b ? b->id : 0, offset, &direct, err) != 0) return -1;
    if (call->on_link) call->met_ns = clock_ns();
    return direct ? mpi_host_all_reduce(mpi, b, err) : mpi_move(mpi, err);
}

static int run(void *state, PgCall *call, uint64_t *moved, Error *err) {
    PgMpi *mpi = state;
    int status;
    mpi->call = call;
    mpi->moved = 0;
    if (call->operation == PG_SEND)
        status = mpi_send(mpi, err);
    else if (call->operation == PG_RECV)
        status = mpi_receive(mpi, err);
    else
        status = run_together(mpi, call, err);
    *moved += mpi->moved;
    return status;
}

static void abort_group(void *state, const char *message) {
    mpi_tell_failure(state, message);
    mpi_end_soon();
}

static int use_fast_sums(void *state) {
    PgMpi *mpi = state;
    mpi->fast = true;
    return 0;
}

// ---- shared memory -----------------------------------------------------------------------------

static void *shared_alloc(void *state, const PgCall *call, Error *err) {
    PgMpi *mpi = state;
    const size_t stride = segment_whole_pages(call->collective.count);
    SharedBlocks blocks = {.stride = stride, .rank = mpi->hosts.local_rank};
    bool direct;
    mpi->call = call;
    if (mpi_meet(mpi, 0, 0, &direct, err) != 0) return NULL;
    if (mpi->hosts.blocked) {
        blocks.segment = mpi_share(mpi, stride, err);
        if (!blocks.segment) return NULL;
        blocks.id = call->sequence;
        blocks.base = blocks.segment->base;
    } else {
        blocks.base = aligned_alloc(segment_whole_pages(1), stride);
        CHECK(blocks.base, "no memory for %zu bytes", stride);
    }
    return memset(blocks_own(blocks_add(&mpi->allocations, blocks)), 0, stride);
}

// ---- opening and closing -----------------------------------------------------------------------

static void close_group(void *state) {
    PgMpi *mpi = state;
    if (mpi->failed) return; // messages into it may be in flight
    blocks_free(&mpi->allocations);
    CallWatch *watch = call_watch_begin(NULL, "MPI_Comm_free", mpi->timeout_s);
    MPI_Comm_free(&mpi->comm);
    call_watch_end(watch);
    CHECK(pthread_mutex_destroy(&mpi->mutex) == 0, "rank %d: the mutex is held", mpi->rank);
    free(mpi->requests);
    free(mpi->peers);
    free(mpi->headers);
    free(mpi->sources);
    free(mpi->buffers);
    free(mpi->scratch);
    free(mpi);
}

// Open MPI creates a communicator by messages on the parent communicator, with the tag given to
// MPI_Comm_create_group. A rank may still have receives of ours posted there, so the tags of
// mpi_internal.h are avoided. Every MPI allows tags up to 0x7fff.
enum { FIRST_OPENING_TAG = 0x4000 };

// Creates the state for a group of `count` ranks of a communicator. Collective over them. `tag`
// separates concurrent creations. Returns NULL with err filled on failure.
static PgMpi *open_state(MPI_Comm comm, const int *ranks, int count, int tag, double timeout_s,
                         Error *err) {
    PgMpi *mpi = memory_zalloc(sizeof *mpi);
    MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    *mpi = (PgMpi){.world = count, .timeout_s = timeout_s, .mutex = PTHREAD_MUTEX_INITIALIZER};
    mpi->headers = memory_zalloc((size_t)count * sizeof *mpi->headers);
    mpi->sources = memory_zalloc(((size_t)count + 1) * sizeof *mpi->sources);
    mpi->buffers = memory_zalloc((size_t)count * sizeof *mpi->buffers);
    CallWatch *watch = call_watch_begin(NULL, "the beginning of an MPI group", timeout_s);
    int status = MPI(MPI_Comm_group(comm, &all), err) ||
                 MPI(MPI_Group_incl(all, count, ranks, &members), err) ||
                 MPI(MPI_Comm_create_group(comm, members, tag, &mpi->comm), err) ||
                 MPI(MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN), err) ||
                 MPI(MPI_Comm_rank(mpi->comm, &mpi->rank), err) || mpi_find_hosts(mpi, err) != 0;
    call_watch_end(watch);
    if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
    if (members != MPI_GROUP_NULL) MPI_Group_free(&members);
    return status ? NULL : mpi;
}

static int new_subgroup(void *state, const PgCall *call, void **member, Error *err) {
    PgMpi *mpi = state;
    const uint64_t members = call->collective.count;
    int count = 0, ranks[PG_SUBGROUP_PARENT_MAX];
    bool direct;
    mpi->call = call;
    for (int r = 0; r < mpi->world; r++)
        if (pg_member_rank(members, r) >= 0) ranks[count++] = r;
    if (mpi_meet(mpi, 0, 0, &direct, err) != 0) return -1;
    if (pg_member_rank(members, mpi->rank) < 0) return 0;
    const int tag = FIRST_OPENING_TAG + (int)(call->sequence % 0x4000);
    *member = open_state(mpi->comm, ranks, count, tag, mpi->timeout_s, err);
    return *member ? 0 : -1;
}

static const PgBackend backend_mpi = {.name = "mpi",
                                      .run = run,
                                      .shared_alloc = shared_alloc,
                                      .new_subgroup = new_subgroup,
                                      .abort = abort_group,
                                      .close = close_group,
                                      .use_fast_sums = use_fast_sums};

// MPI connects its ranks itself, so the address carries no information: it is the backend's name.
static int create_address(PgEndpoint *endpoint, Error *err) {
    (void)err;
    strcpy(endpoint->address, "mpi");
    return 0;
}

static ProcessGroup *open_group(PgEndpoint *endpoint, Error *err) {
    const int world = endpoint->world;
    const PgOptions *options = endpoint->options;
    int *ranks = memory_zalloc((size_t)world * sizeof *ranks);
    for (int r = 0; r < world; r++) ranks[r] = r;
    PgMpi *mpi =
        open_state(MPI_COMM_WORLD, ranks, world, FIRST_OPENING_TAG, options->timeout_s, err);
    free(ranks);
    if (!mpi) return NULL;
    ProcessGroup *group = pg_new(&backend_mpi, mpi, endpoint->rank, world, options, err);
    if (!group) close_group(mpi);
    return group;
}

const PgOpener pg_opener_mpi = {.name = "mpi",
                                .built = true,
                                .started = mpi_started,
                                .prepare = mpi_prepare,
                                .tell = mpi_tell,
                                .create = create_address,
                                .open = open_group};
