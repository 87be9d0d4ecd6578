/* communicator.c: creation, end and abort of communicators.
 *
 * Communicators are non-blocking: no NCCL call waits for another rank, so that this thread can
 * check the clock, and abort. The cost: almost every call may return "in progress", no other call
 * is allowed until it completes (nccl_settle), and NCCL starts a thread per call. With
 * NCCL_COMM_BLOCKING=1 calls block, and another thread checks the clock (nccl_guard.c).
 */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/machine.h"
#include "common/base/sync.h"
#include "ddp/group/call_watch.h"
#include "ddp/group/nccl/nccl_internal.h"

enum { OLDEST = 21900, SHARED_GPU = 23003 }; // NCCL versions: required; allows ranks to share a GPU

// Deadline of ncclCommAbort, or the group's timeout if that is shorter. Then the process ends,
// because a blocked call cannot be cancelled.
#define ABORT_S 20.0
#define CLOSE_S 10.0 // for the other ranks to close

static int read_version(int *version, Error *err) {
    ncclResult_t result = ncclGetVersion(version);
    if (result != ncclSuccess)
        return error_set(err, STATUS_FAILED, "ncclGetVersion: %s", ncclGetErrorString(result));
    if (*version < OLDEST)
        return error_set(err, STATUS_SKIPPED,
                         "NCCL %d.%d.%d was found at run time, 2.19 or later is needed",
                         *version / 10000, *version / 100 % 100, *version % 100);
    int major = *version / 10000, minor = *version / 100 % 100;
    if (major == NCCL_MAJOR && minor >= NCCL_MINOR) return 0; // a patch changes no function
    return error_set(err, STATUS_SKIPPED,
                     "this program was built with NCCL %d.%d.%d and finds %d.%d.%d at run time: "
                     "%d.%d or a newer %d.x is needed (LD_LIBRARY_PATH)",
                     NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, major, minor, *version % 100, NCCL_MAJOR,
                     NCCL_MINOR, NCCL_MAJOR);
}

// ---- addresses ---------------------------------------------------------------------------------

int nccl_create(PgEndpoint *endpoint, Error *err) {
    ncclUniqueId id;
    _Static_assert(sizeof endpoint->address > 2 * sizeof id, "an address fits");
    int version;
    if (read_version(&version, err) != 0) return -1;
    ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess)
        return error_set(err, STATUS_FAILED, "ncclGetUniqueId: %s", ncclGetLastError(NULL));
    for (size_t i = 0; i < sizeof id; i++)
        snprintf(endpoint->address + 2 * i, 3, "%02x", (unsigned char)id.internal[i]);
    return 0;
}

// ---- cards -------------------------------------------------------------------------------------

// NCCL's identity of a host: NCCL_HOSTID, or name and boot id.
static void describe_host(char text[96]) {
    const char *given = getenv("NCCL_HOSTID");
    char boot[48], name[40];
    machine_boot_id(boot, sizeof boot);
    machine_name(name, sizeof name);
    if (given && *given)
        snprintf(text, 96, "%.90s", given);
    else
        snprintf(text, 96, "%s/%.8s", name, boot);
    for (char *c = text; *c; c++)
        if (*c <= ' ') *c = '_'; // a card is one word
}

int nccl_card(const Device *device, int rank, char card[PG_CARD_MAX], Error *err) {
    char host[96], bus[32];
    int version;
    if (read_version(&version, err) != 0) return -1;
    const char *sharing = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    bool shared = sharing && strcmp(sharing, "1") == 0 && version >= SHARED_GPU;
    CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, cuda_enter(device)->ordinal));
    describe_host(host);
    if (shared)
        snprintf(card, PG_CARD_MAX, "%s@%s/rank%d", bus, host, rank);
    else
        snprintf(card, PG_CARD_MAX, "%s@%s", bus, host);
    return 0;
}

// ---- life --------------------------------------------------------------------------------------

int nccl_settle(PgNccl *nccl, ncclResult_t result, const char *what, Error *err) {
    uint64_t start_ns = clock_ns();
    if (nccl_guard_leave(nccl, err) != 0) return -1;
    while (result == ncclInProgress) {
        if (nccl_check(nccl, nccl->call, err) != 0) return -1;
        ncclResult_t asked = ncclCommGetAsyncError(nccl->communicator, &result);
        if (asked != ncclSuccess) result = asked;
        if (result == ncclInProgress) sync_back_off(start_ns);
    }
    if (result == ncclSuccess) return 0;
    return error_set(err, STATUS_FAILED, "rank %d: %.*s: %s: %s", nccl->rank,
                     (int)strcspn(what, "("), what, ncclGetErrorString(result),
                     ncclGetLastError(nccl->communicator));
}

int nccl_connect(PgNccl *nccl, const char *address, Error *err) {
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t made = NULL, *created = nccl->guard ? &made : &nccl->communicator;
    config.blocking = nccl->guard != NULL;
    bool fine = strlen(address) == 2 * sizeof id;
    for (size_t i = 0; i < sizeof id && fine; i++) {
        unsigned byte;
        fine = sscanf(address + 2 * i, "%2x", &byte) == 1;
        id.internal[i] = (char)byte;
    }
    if (!fine) return error_set(err, STATUS_FAILED, "\"%.40s\" is no NCCL address", address);
    (void)cuda_enter(nccl->device);
    if (NCCL(nccl, ncclCommInitRankConfig(created, nccl->world, id, nccl->rank, &config), err))
        return -1;
    nccl->communicator = *created;
    return 0;
}

void nccl_abort(PgNccl *nccl, const char *reason) {
    if (!nccl->communicator) return;
    double seconds = nccl->timeout_s < ABORT_S ? nccl->timeout_s : ABORT_S;
    CallWatch *watch = call_watch_begin(reason, "ncclCommAbort", seconds);
    (void)ncclCommAbort(nccl->communicator); // on an error, too, the communicator is freed
    nccl->communicator = NULL;
    call_watch_end(watch);
}

void nccl_disconnect(PgNccl *nccl) {
    PgCall closing = {
        .collective = pg_barrier(), .deadline_ns = clock_ns_after(CLOSE_S), .timeout_s = CLOSE_S};
    Error late = {0};
    if (!nccl->communicator) return;
    nccl->call = &closing;
    if (NCCL(nccl, ncclCommFinalize(nccl->communicator), &late))
        nccl_abort(nccl, late.message);
    else
        (void)ncclCommDestroy(nccl->communicator);
    nccl->communicator = NULL;
}
