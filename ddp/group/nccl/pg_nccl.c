/* pg_nccl.c: the nccl backend: opening and closing groups, tickets, shared memory, subgroups, and
 * the table of functions that a ProcessGroup calls. Threads and order are in internal.h.
 *
 * After a failure the communicator is aborted by the communication thread, at its next poll. That
 * ends NCCL's kernels on the device, and so frees an owner that waits for its compute stream. NCCL
 * then waits for the owner: until it has closed the graphs that hold collectives (pg_check_sound
 * tells it when), or until the time for an abort is over.
 */
#include "ddp/group/nccl/pg_nccl.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/group/debug_level.h"
#include "ddp/group/nccl/internal.h"

#define STORE_S 10.0 // for an answer of the store

// ---- tickets --------------------------------------------------------------------------------

static Ticket *take_ticket(PgNccl *nccl) {
    pthread_mutex_lock(&nccl->mutex);
    Ticket *ticket = nccl->spare;
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

static void let_go(PgNccl *nccl, Ticket *ticket) {
    pthread_mutex_lock(&nccl->mutex);
    if (--ticket->holders == 0) {
        ticket->next = nccl->spare;
        nccl->spare = ticket;
    }
    pthread_mutex_unlock(&nccl->mutex);
}

static void close_tickets(PgNccl *nccl) {
    while (nccl->made) {
        Ticket *ticket = nccl->made;
        nccl->made = ticket->made_before;
        CUDA(cudaEventDestroy(ticket->begin));
        CUDA(cudaEventDestroy(ticket->end));
        free(ticket);
    }
}

// ---- a collective's way ---------------------------------------------------------------------

static int queue_issue(void *state, PgCall *call, Error *err) {
    PgNccl *nccl = state;
    const Collective *c = &call->collective;
    const CudaDevice *cuda = cuda_enter(nccl->device);
    Ticket *ticket = take_ticket(nccl);
    ticket->host_send = nccl_is_host(c->send);
    ticket->host_receive = nccl_is_host(c->receive);
    ticket->captured = call->recorded = cuda->capturing;
    ticket->holders = 1;
    call->ticket = ticket;
    if (cuda->capturing) nccl->cuda->wait_s = nccl->timeout_s; // nobody watches over a replay
    if (!cuda->capturing || !(ticket->host_send || ticket->host_receive || c->kind == PG_BARRIER)) {
        CUDA(cudaEventRecord(ticket->begin, cuda->compute));
        return 0;
    }
    char text[PG_DESCRIPTION_MAX];
    let_go(nccl, ticket);
    return error_set(err, STATUS_FAILED,
                     "rank %d: %s cannot be recorded into a graph: it %s host memory", nccl->rank,
                     pg_describe(call->operation, c, text),
                     c->kind == PG_BARRIER ? "goes through" : "works on");
}

// The communication thread has queued the collective: it holds the ticket until the end.
static void put_in_flight(PgNccl *nccl, const PgCall *call) {
    Ticket *ticket = call->ticket;
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
    Ticket *ticket = call->ticket;
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
    Ticket *ticket = call->ticket;
    const CudaDevice *cuda = cuda_enter(nccl->device);
    CUDA(cudaStreamWaitEvent(cuda->compute, ticket->end, cudaEventWaitDefault));
    let_go(nccl, ticket);
}

// Ends what is in flight. The tickets stay as they are: nobody will need them again.
static void stop(PgNccl *nccl) {
    if (!nccl->communicator) return;
    nccl_tell_failure(nccl, nccl->message);
    nccl_abort(nccl, nccl->message);
    nccl->first = nccl->last = NULL;
}

static bool has_failed(PgNccl *nccl) {
    pthread_mutex_lock(&nccl->mutex);
    bool failed = nccl->failed;
    pthread_mutex_unlock(&nccl->mutex);
    return failed;
}

static int queue_poll(void *state, PgCall *done, bool *busy, Error *err) {
    PgNccl *nccl = state;
    (void)cuda_enter(nccl->device);
    if (has_failed(nccl)) {
        stop(nccl);
        *busy = false;
        return 0;
    }
    Ticket *ticket = nccl->first;
    *busy = true; // also after a failure here: the next call stops it
    cudaError_t status = ticket ? cudaEventQuery(ticket->end) : cudaErrorNotReady;
    if (status == cudaSuccess) {
        nccl->first = ticket->next;
        if (!nccl->first) nccl->last = NULL;
        *done = ticket->call;
        let_go(nccl, ticket);
        return 1;
    }
    if (status != cudaErrorNotReady)
        return error_set(err, STATUS_FAILED, "rank %d: %s", nccl->rank, cudaGetErrorString(status));
    if (nccl_look(nccl, ticket ? &ticket->call : NULL, err) != 0) return -1;
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

// ---- shared memory --------------------------------------------------------------------------

static void release_region(PgNccl *nccl, Region *region) {
    if (region->handle && nccl->communicator)
        (void)ncclCommDeregister(nccl->communicator, region->handle);
    (void)ncclMemFree(region->memory);
    free(region);
}

static void *queue_shared_alloc(void *state, const PgCall *call, Error *err) {
    PgNccl *nccl = state;
    size_t bytes = call->collective.count ? call->collective.count : 1;
    (void)cuda_enter(nccl->device);
    if (nccl_arrive(nccl, call, err) != 0 || nccl_await_stream(nccl, err) != 0) return NULL;
    Region *region = memory_zalloc(sizeof *region);
    if (ncclMemAlloc(&region->memory, bytes) != ncclSuccess) {
        error_set(err, STATUS_FAILED, "rank %d: no memory on the device for %zu bytes", nccl->rank,
                  bytes);
        free(region);
        return NULL;
    }
    region->next = nccl->regions;
    nccl->regions = region;
    // Registered memory can be faster on some networks; it works without.
    Error ignored = {0};
    if (NCCL(nccl, ncclCommRegister(nccl->communicator, region->memory, bytes, &region->handle),
             &ignored))
        region->handle = NULL;
    CUDA(cudaMemsetAsync(region->memory, 0, bytes, nccl->stream));
    return nccl_barrier(nccl, err) ? NULL : region->memory;
}

// ---- opening and closing --------------------------------------------------------------------

static void queue_close(void *state) {
    PgNccl *nccl = state;
    (void)cuda_enter(nccl->device);
    if (nccl->failed)
        stop(nccl);
    else
        nccl_tell_closed(nccl);
    cuda_wait_stream(
        nccl->cuda->compute); // it may still read gradients, and unmapping waits for nobody
    for (Region *next, *region = nccl->regions; region; region = next) {
        next = region->next;
        release_region(nccl, region);
    }
    nccl_disconnect(nccl);
    nccl_guard_close(nccl);
    nccl_close_stages(nccl);
    close_tickets(nccl);
    CUDA(cudaEventDestroy(nccl->staged));
    if (nccl->stream != nccl->cuda->communication) CUDA(cudaStreamDestroy(nccl->stream));
    store_close(nccl->place.store);
    if (nccl->place.leave) nccl->place.leave(nccl->place.context);
    pthread_mutex_destroy(&nccl->mutex);
    free(nccl);
}

// The first group of a device has the device's stream, each other one its own: two groups on one
// stream would wait for each other where two ranks call them in different order.
static cudaStream_t choose_stream(const CudaDevice *cuda, bool first) {
    cudaStream_t stream = cuda->communication;
    if (!first) CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

// Takes the place's store. NULL with err filled; then `leave` was not called.
static PgNccl *open_state(const PgNcclPlace *place, const char *name, Error *err) {
    PgNccl *nccl = memory_zalloc(sizeof *nccl);
    PgCall joining = {.operation = PG_BARRIER,
                      .collective = pg_barrier(),
                      .deadline_ns = clock_ns_after(place->options->timeout_s),
                      .timeout_s = place->options->timeout_s};
    DebugLevel level;
    Error error = {0};
    nccl->device = place->device;
    nccl->cuda = cuda_enter(place->device);
    nccl->stream = choose_stream(nccl->cuda, place->leave != NULL);
    nccl->rank = place->rank;
    nccl->world = place->world;
    nccl->timeout_s = place->options->timeout_s;
    nccl->place = *place;
    snprintf(nccl->name, sizeof nccl->name, "%s", name);
    pthread_mutex_init(&nccl->mutex, NULL);
    CUDA(cudaEventCreateWithFlags(&nccl->staged, cudaEventDisableTiming));
    nccl->call = &joining;
    if (debug_level_read(&level, &error) == 0 && nccl_guard_open(nccl, &error) == 0 &&
        nccl_connect(nccl, place->address, &error) == 0 && nccl_barrier(nccl, &error) == 0) {
        nccl->detail = level == DEBUG_DETAIL;
        nccl->call = NULL;
        return nccl;
    }
    error_set(err, error.status, "%s", error.message);
    nccl->place.leave = NULL;
    queue_abort(nccl, error.message);
    queue_close(nccl);
    return NULL;
}

// ---- subgroups ------------------------------------------------------------------------------

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

// The first member makes the new group's address and leaves it in the store. Ranks outside go on.
static int queue_new_subgroup(void *state, const PgCall *call, void **member, Error *err) {
    PgNccl *nccl = state;
    int count = 0, place = -1; // this rank's
    for (int r = 0; r < nccl->world; r++) {
        if (!((uint64_t)call->collective.count >> r & 1)) continue;
        if (r == nccl->rank) place = count;
        count++;
    }
    *member = NULL;
    if (check_connections(err) != 0 || nccl_arrive(nccl, call, err) != 0) return -1;
    if (place < 0) return 0;
    char address[PG_NCCL_ADDRESS_MAX], name[NCCL_NAME_MAX];
    char key[NCCL_KEY_MAX];
    snprintf(name, sizeof name, "%.40s.%ju", nccl->name, (uintmax_t)call->sequence);
    snprintf(key, sizeof key, "nccl/%s/address", name);
    if (place > 0) {
        if (nccl_read_key(nccl, key, "", address, sizeof address, err) != 0) return -1;
    } else if (pg_nccl_create(address, err) != 0 ||
               store_set(nccl->place.store, key, address, strlen(address), err) != 0) {
        return -1;
    }
    Store *store = store_clone(nccl->place.store, STORE_S, err);
    if (!store) return -1;
    const PgOptions options = {.timeout_s = nccl->timeout_s};
    const PgNcclPlace inside = {.address = address,
                                .device = nccl->device,
                                .rank = place,
                                .world = count,
                                .options = &options,
                                .store = store};
    *member = open_state(&inside, name, err);
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

ProcessGroup *pg_nccl_open(const PgNcclPlace *place, Error *err) {
    PgNccl *nccl = open_state(place, "world", err);
    if (!nccl) return NULL;
    ProcessGroup *group =
        pg_new(&backend_nccl, nccl, place->rank, place->world, place->options, err);
    if (group) return group;
    nccl->place.leave = NULL;
    queue_close(nccl);
    return NULL;
}
