/* pg_nccl.c: the nccl backend: process groups whose ranks are GPUs, with NCCL (2.19 or later).
 * Threads and order are in nccl_internal.h.
 *
 * Each rank has a GPU of its own. NCCL rejects ranks that share one, and rendezvous
 * (ddp/rendezvous/init.c) before that, by comparing the ranks' cards. The exception, for
 * correctness only, is ddprun --fake-hosts, which emulates several hosts on one.
 *
 * Differences from shm:
 *  - Sums: in NCCL's order. All ranks get the same bits, but different from shm's and dependent on
 *    the buckets.
 *  - Sends complete when the receiver has received the message: two ranks that both send first and
 *    then receive deadlock (as with PyTorch).
 *  - Calls are compared at debug level DETAIL only. Otherwise a mismatch is an error at the
 *    deadline, which gives the last call of each rank.
 *  - Graphs: collectives of a step that is recorded into a graph (device.h) are recorded too, with
 *    device buffers only. The backend cannot poll them in a replay, so from the first recording on
 *    the host waits for the device for at most the group's timeout, and then ends the process.
 *      - All calls are waited for before a graph with collectives is launched; otherwise the graph
 *        overtakes them on some ranks.
 *      - All ranks launch the graphs that they recorded together.
 *      - Before each launch the owner calls pg_check_sound, and on failure closes its graphs: the
 *        abort of the communicator waits for that. Graphs are closed before the group.
 *  - Subgroups have communicators and threads of their own, so collectives of two groups reach the
 *    device in different orders on different ranks. If their streams shared a hardware queue of
 *    CUDA, they could deadlock. So common/device/cuda/load.c requests CUDA's maximum of queues,
 *    enough for the streams of eight groups and NCCL's own, and creating a subgroup fails if
 *    CUDA_DEVICE_MAX_CONNECTIONS requests fewer than eight.
 *  - NCCL_COMM_BLOCKING (NCCL's variable): 1, its calls block; 0, the default here, they do not.
 *    Deadlines hold in either case.
 *
 * The files here are a shared object that programs load on first use (nccl_load.c). A build
 * without NCCL compiles nccl_absent.c instead of nccl_load.c.
 *
 * After a failure the communication thread aborts the communicator at its next poll. That ends
 * NCCL's kernels, and so releases an owner that waits for its compute stream. ncclCommAbort in turn
 * waits until the owner has closed the graphs that hold collectives (pg_check_sound tells it when),
 * or until the deadline of the abort.
 */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/group/debug_level.h"
#include "ddp/group/group_internal.h"
#include "ddp/group/nccl/nccl_internal.h"

#define STORE_S 10.0 // for an answer of the store

// ---- tickets -----------------------------------------------------------------------------------

static NcclTicket *take_ticket(PgNccl *nccl) {
    pthread_mutex_lock(&nccl->mutex);
    NcclTicket *ticket = nccl->spare;
    if (ticket) nccl->spare = ticket->next;
    pthread_mutex_unlock(&nccl->mutex);
    if (ticket) return ticket;
    ticket = memory_zalloc(sizeof *ticket);
    CUDA(cudaEventCreateWithFlags(&ticket->begin, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&ticket->end, cudaEventDisableTiming));
    pthread_mutex_lock(&nccl->mutex);
    ticket->made_before = nccl->made;
    nccl->made = ticket;
    pthread_mutex_unlock(&nccl->mutex);
    return ticket;
}

static void release_ticket(PgNccl *nccl, NcclTicket *ticket) {
    pthread_mutex_lock(&nccl->mutex);
    if (--ticket->holders == 0) {
        ticket->next = nccl->spare;
        nccl->spare = ticket;
    }
    pthread_mutex_unlock(&nccl->mutex);
}

// ---- a collective's way ------------------------------------------------------------------------

static int queue_issue(void *state, PgCall *call, Error *err) {
    PgNccl *nccl = state;
    const Collective *c = &call->collective;
    const CudaDevice *cuda = cuda_enter(nccl->device);
    NcclTicket *ticket = take_ticket(nccl);
    ticket->host_send = nccl_is_host(c->send);
    ticket->host_receive = nccl_is_host(c->receive);
    ticket->captured = call->recorded = cuda->capturing;
    ticket->holders = 1;
    call->ticket = ticket;
    if (cuda->capturing) nccl->cuda->wait_s = nccl->timeout_s; // the backend cannot poll a replay
    if (!cuda->capturing || !(ticket->host_send || ticket->host_receive || c->kind == PG_BARRIER)) {
        CUDA(cudaEventRecord(ticket->begin, cuda->compute));
        return 0;
    }
    char text[PG_DESCRIPTION_MAX];
    release_ticket(nccl, ticket);
    return error_set(err, STATUS_FAILED,
                     "rank %d: %s cannot be recorded into a graph: it %s host memory", nccl->rank,
                     pg_describe(call->operation, c, text),
                     c->kind == PG_BARRIER ? "goes through" : "works on");
}

// The collective is enqueued: the communication thread holds the ticket until its completion.
static void put_in_flight(PgNccl *nccl, const PgCall *call) {
    NcclTicket *ticket = call->ticket;
    ticket->call = *call;
    ticket->next = NULL;
    pthread_mutex_lock(&nccl->mutex);
    ticket->holders++;
    pthread_mutex_unlock(&nccl->mutex);
    if (nccl->last)
        nccl->last->next = ticket;
    else
        nccl->first = ticket;
    nccl->last = ticket;
}

static int queue_run(void *state, PgCall *call, uint64_t *moved, Error *err) {
    PgNccl *nccl = state;
    NcclTicket *ticket = call->ticket;
    bool on_host = ticket->host_send || ticket->host_receive || call->collective.kind == PG_BARRIER;
    (void)cuda_enter(nccl->device);
    if (nccl_arrive(nccl, call, err) != 0) return -1;
    CUDA(cudaStreamWaitEvent(nccl->stream, ticket->begin, cudaEventWaitDefault));
    if (nccl_queue(nccl, call, ticket, moved, err) != 0) return -1;
    CUDA(cudaEventRecord(ticket->end, nccl->stream));
    call->in_flight = !on_host && !ticket->captured;
    if (call->in_flight) put_in_flight(nccl, call);
    return 0;
}

static void queue_join(void *state, PgCall *call) {
    PgNccl *nccl = state;
    NcclTicket *ticket = call->ticket;
    const CudaDevice *cuda = cuda_enter(nccl->device);
    CUDA(cudaStreamWaitEvent(cuda->compute, ticket->end, cudaEventWaitDefault));
    release_ticket(nccl, ticket);
}

// Aborts the calls in flight. Their tickets are never reused.
static void stop(PgNccl *nccl) {
    if (!nccl->communicator) return;
    nccl_tell_failure(nccl, nccl->message);
    nccl_abort(nccl, nccl->message);
    nccl->first = nccl->last = NULL;
}

static int queue_poll(void *state, PgCall *done, bool *busy, Error *err) {
    PgNccl *nccl = state;
    (void)cuda_enter(nccl->device);
    pthread_mutex_lock(&nccl->mutex);
    const bool failed = nccl->failed;
    pthread_mutex_unlock(&nccl->mutex);
    if (failed) {
        stop(nccl);
        *busy = false;
        return 0;
    }
    NcclTicket *ticket = nccl->first;
    *busy = true; // also on failure below: the next poll aborts
    cudaError_t status = ticket ? cudaEventQuery(ticket->end) : cudaErrorNotReady;
    if (status == cudaSuccess) {
        nccl->first = ticket->next;
        if (!nccl->first) nccl->last = NULL;
        *done = ticket->call;
        release_ticket(nccl, ticket);
        return 1;
    }
    if (status != cudaErrorNotReady)
        return error_set(err, STATUS_FAILED, "rank %d: %s", nccl->rank, cudaGetErrorString(status));
    if (nccl_check(nccl, ticket ? &ticket->call : NULL, err) != 0) return -1;
    *busy = ticket != NULL;
    return 0;
}

static void queue_abort(void *state, const char *message) {
    PgNccl *nccl = state;
    pthread_mutex_lock(&nccl->mutex);
    snprintf(nccl->message, sizeof nccl->message, "%s", message);
    nccl->failed = true;
    pthread_mutex_unlock(&nccl->mutex);
}

// ---- shared memory -----------------------------------------------------------------------------

static void *queue_shared_alloc(void *state, const PgCall *call, Error *err) {
    PgNccl *nccl = state;
    size_t bytes = call->collective.count ? call->collective.count : 1;
    (void)cuda_enter(nccl->device);
    if (nccl_arrive(nccl, call, err) != 0 || nccl_await_stream(nccl, err) != 0) return NULL;
    NcclRegion *region = memory_zalloc(sizeof *region);
    if (ncclMemAlloc(&region->memory, bytes) != ncclSuccess) {
        free(region);
        return error_null(err, STATUS_FAILED, "rank %d: no memory on the device for %zu bytes",
                          nccl->rank, bytes);
    }
    region->next = nccl->regions;
    nccl->regions = region;
    // Registered memory can be faster on some networks; it works without.
    Error ignored = {0};
    if (NCCL(nccl, ncclCommRegister(nccl->communicator, region->memory, bytes, &region->handle),
             &ignored))
        region->handle = NULL;
    CUDA(cudaMemsetAsync(region->memory, 0, bytes, nccl->stream));
    return nccl_barrier(nccl, err) != 0 ? NULL : region->memory;
}

// ---- opening and closing -----------------------------------------------------------------------

static void queue_close(void *state) {
    PgNccl *nccl = state;
    (void)cuda_enter(nccl->device);
    if (nccl->failed)
        stop(nccl);
    else
        nccl_tell_closed(nccl);
    cuda_wait_stream(
        nccl->cuda->compute); // it may still read gradients, and unmapping does not wait
    for (NcclRegion *next, *region = nccl->regions; region; region = next) {
        next = region->next;
        if (region->handle && nccl->communicator)
            (void)ncclCommDeregister(nccl->communicator, region->handle);
        (void)ncclMemFree(region->memory);
        free(region);
    }
    nccl_disconnect(nccl);
    nccl_guard_close(nccl);
    nccl_close_stages(nccl);
    for (NcclTicket *before, *ticket = nccl->made; ticket; ticket = before) {
        before = ticket->made_before;
        CUDA(cudaEventDestroy(ticket->begin));
        CUDA(cudaEventDestroy(ticket->end));
        free(ticket);
    }
    CUDA(cudaEventDestroy(nccl->staged));
    if (nccl->stream != nccl->cuda->communication) CUDA(cudaStreamDestroy(nccl->stream));
    store_close(nccl->endpoint.store);
    if (nccl->endpoint.leave) nccl->endpoint.leave(nccl->endpoint.context);
    pthread_mutex_destroy(&nccl->mutex);
    free(nccl);
}

// Takes the endpoint's store. NULL with err filled; then `leave` was not called.
static PgNccl *open_state(const PgEndpoint *endpoint, Error *err) {
    PgNccl *nccl = memory_zalloc(sizeof *nccl);
    PgCall joining = {.operation = PG_BARRIER,
                      .collective = pg_barrier(),
                      .deadline_ns = clock_ns_after(endpoint->options->timeout_s),
                      .timeout_s = endpoint->options->timeout_s};
    DebugLevel level;
    Error error = {0};
    nccl->device = endpoint->device;
    nccl->cuda = cuda_enter(endpoint->device);
    // The first group of a device uses the device's stream, every other group its own: two groups
    // on one stream would deadlock where two ranks call them in different orders.
    nccl->stream = nccl->cuda->communication;
    if (!endpoint->leave) nccl->stream = cuda_communication_stream_create();
    nccl->rank = endpoint->rank;
    nccl->world = endpoint->world;
    nccl->timeout_s = endpoint->options->timeout_s;
    nccl->endpoint = *endpoint;
    pthread_mutex_init(&nccl->mutex, NULL);
    CUDA(cudaEventCreateWithFlags(&nccl->staged, cudaEventDisableTiming));
    nccl->call = &joining;
    if (debug_level_read(&level, &error) == 0 && nccl_guard_open(nccl, &error) == 0 &&
        nccl_connect(nccl, endpoint->address, &error) == 0 && nccl_barrier(nccl, &error) == 0) {
        nccl->detail = level == DEBUG_DETAIL;
        nccl->call = NULL;
        return nccl;
    }
    error_set(err, error.status, "%s", error.message);
    nccl->endpoint.leave = NULL;
    queue_abort(nccl, error.message);
    queue_close(nccl);
    return NULL;
}

// ---- subgroups ---------------------------------------------------------------------------------

enum { CONNECTIONS = 8 }; // CUDA's queues: for this group's streams, another's and NCCL's own

static int check_connections(Error *err) {
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (!text || atoi(text) >= CONNECTIONS) return 0;
    return error_set(
        err, STATUS_USAGE,
        "CUDA_DEVICE_MAX_CONNECTIONS=%s: a group within the group has a communicator of "
        "its own, and two of them need queues that do not wait for each other: %d at least",
        text, CONNECTIONS);
}

// The first member creates the subgroup's address and sets it in the store. Ranks outside return at
// once.
static int queue_new_subgroup(void *state, const PgCall *call, void **member, Error *err) {
    PgNccl *nccl = state;
    const uint64_t members = call->collective.count;
    const int count = pg_member_count(members), own_rank = pg_member_rank(members, nccl->rank);
    *member = NULL;
    if (check_connections(err) != 0 || nccl_arrive(nccl, call, err) != 0) return -1;
    if (own_rank < 0) return 0;
    const PgOptions options = {.timeout_s = nccl->timeout_s};
    PgEndpoint inside = {
        .device = nccl->device, .rank = own_rank, .world = count, .options = &options};
    char name[24], key[NCCL_KEY_MAX];
    snprintf(name, sizeof name, "%ju", (uintmax_t)call->sequence);
    snprintf(key, sizeof key, "%s/address", name);
    if (own_rank > 0) {
        if (nccl_read_key(nccl, key, "", inside.address, PG_ADDRESS_MAX, err) != 0) return -1;
    } else if (nccl_create(&inside, err) != 0 ||
               store_set(nccl->endpoint.store, key, inside.address, strlen(inside.address), err) !=
                   0) {
        return -1;
    }
    inside.store = store_clone(nccl->endpoint.store, STORE_S, err);
    if (!inside.store) return -1;
    store_add_prefix(inside.store, name);
    *member = open_state(&inside, err);
    return *member ? 0 : -1;
}

static const PgBackend backend_nccl = {.name = "nccl",
                                       .run = queue_run,
                                       .shared_alloc = queue_shared_alloc,
                                       .new_subgroup = queue_new_subgroup,
                                       .abort = queue_abort,
                                       .close = queue_close,
                                       .issue = queue_issue,
                                       .join = queue_join,
                                       .poll = queue_poll};

// The group is unlisted: the program's list of open groups is another than this object's.
static ProcessGroup *open_unlisted(PgEndpoint *endpoint, Error *err) {
    store_add_prefix(endpoint->store, "nccl");
    PgNccl *nccl = open_state(endpoint, err);
    if (!nccl) return NULL;
    ProcessGroup *group =
        pg_new(&backend_nccl, nccl, endpoint->rank, endpoint->world, endpoint->options, err);
    if (group) {
        (void)pg_unlist_open(group);
        return group;
    }
    nccl->endpoint.leave = NULL;
    queue_close(nccl);
    return NULL;
}

const PgOpener pg_nccl_module = {
    .name = "nccl", .built = true, .create = nccl_create, .card = nccl_card, .open = open_unlisted};
