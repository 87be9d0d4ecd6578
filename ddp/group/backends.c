/* backends.c: the list of backends. A new backend is one more entry here and its own files; no
 * other file depends on which backends are compiled in.
 */
#include "ddp/group/backends.h"

#include <string.h>

#include "ddp/group/mpi/pg_mpi.h"
#include "ddp/group/nccl/pg_nccl.h"
#include "ddp/group/shm/pg_shm.h"

_Static_assert((int)PG_ADDRESS_MAX >= (int)PG_NCCL_ADDRESS_MAX &&
                   (int)PG_ADDRESS_MAX >= (int)PG_SHM_ADDRESS_MAX,
               "an address fits");
_Static_assert((int)PG_CARD_MAX == (int)PG_NCCL_CARD_MAX, "a card fits");

static bool is_host(const Device *device) {
    return !device || device_is_addressable(device);
}

static bool is_gpu(const Device *device) {
    return !is_host(device);
}

// ---- nccl -------------------------------------------------------------------------------------

static int nccl_refuse(const Device *device, Error *err) {
    return error_set(err, STATUS_USAGE, "backend nccl is for GPUs: use --device cuda, not %s",
                     device ? device->name : "the host's memory");
}

static int nccl_create(PgEndpoint *endpoint, Error *err) {
    return pg_nccl_create(endpoint->address, err);
}

static ProcessGroup *nccl_open(PgEndpoint *endpoint, Error *err) {
    const PgNcclEndpoint inside = {.address = endpoint->address,
                                   .device = endpoint->device,
                                   .rank = endpoint->rank,
                                   .world = endpoint->world,
                                   .options = endpoint->options,
                                   .store = endpoint->store,
                                   .leave = endpoint->leave,
                                   .context = endpoint->context};
    return pg_nccl_open(&inside, err);
}

// ---- mpi --------------------------------------------------------------------------------------

static int mpi_refuse(const Device *device, Error *err) {
    return error_set(err, STATUS_USAGE,
                     "backend mpi cannot reach the memory of %s: use --backend nccl", device->name);
}

// MPI connects its ranks itself, so the address carries no information: it is the backend's name.
static int mpi_create(PgEndpoint *endpoint, Error *err) {
    (void)err;
    strcpy(endpoint->address, "mpi");
    return 0;
}

static ProcessGroup *mpi_open(PgEndpoint *endpoint, Error *err) {
    return pg_mpi_open(endpoint->rank, endpoint->world, endpoint->options, err);
}

// ---- shm --------------------------------------------------------------------------------------

static bool shm_built(void) {
    return true;
}

static int shm_refuse(const Device *device, Error *err) {
    return error_set(err, STATUS_USAGE,
                     "backend shm cannot reach the memory of %s: use --backend nccl", device->name);
}

static int shm_create(PgEndpoint *endpoint, Error *err) {
    PgShmSegment *segment = NULL;
    int status = pg_shm_create(endpoint->world, &segment, endpoint->address, err);
    endpoint->found = segment;
    return status;
}

static int shm_reach(PgEndpoint *endpoint, Error *err) {
    endpoint->found = pg_shm_attach(endpoint->address, endpoint->world, err);
    return endpoint->found ? 0 : -1;
}

static ProcessGroup *shm_open_group(PgEndpoint *endpoint, Error *err) {
    PgShmSegment *segment = endpoint->found;
    endpoint->found = NULL;
    return pg_shm_open(segment, endpoint->rank, endpoint->options, err);
}

static void shm_release(PgEndpoint *endpoint) {
    segment_release(endpoint->found);
}

// ---- the list -----------------------------------------------------------------------------------

static const PgOpener openers[] = {
    {.name = "shm",
     .one_system = true,
     .built = shm_built,
     .fits = is_host,
     .refuse = shm_refuse,
     .create = shm_create,
     .reach = shm_reach,
     .open = shm_open_group,
     .release = shm_release},
    {.name = "mpi",
     .built = pg_mpi_built,
     .fits = is_host,
     .refuse = mpi_refuse,
     .started = pg_mpi_started,
     .prepare = pg_mpi_prepare,
     .tell = pg_mpi_tell,
     .create = mpi_create,
     .open = mpi_open},
    {.name = "nccl",
     .keeps_store = true,
     .built = pg_nccl_built,
     .fits = is_gpu,
     .refuse = nccl_refuse,
     .card = pg_nccl_card,
     .create = nccl_create,
     .open = nccl_open},
};
enum { OPENERS = sizeof openers / sizeof *openers };

static const PgOpener *find_fitting(const Device *device, Error *err) {
    const char *needed = "none";
    for (int i = 0; i < OPENERS; i++) {
        if (!openers[i].fits(device)) continue;
        if (openers[i].built()) return &openers[i];
        needed = openers[i].name;
    }
    error_set(err, STATUS_SKIPPED, "%s needs backend %s, which is not built in", device->name,
              needed);
    return NULL;
}

const PgOpener *pg_backend_find(const char *name, const Device *device, Error *err) {
    char known[64] = "auto";
    if (strcmp(name, "auto") == 0) return find_fitting(device, err);
    for (int i = 0; i < OPENERS; i++) {
        const PgOpener *opener = &openers[i];
        strcat(strcat(known, ", "), opener->name);
        if (strcmp(name, opener->name) != 0) continue;
        if (opener->built() && opener->fits(device)) return opener;
        if (opener->built())
            opener->refuse(device, err);
        else
            error_set(err, STATUS_SKIPPED, "backend %s is not built in", name);
        return NULL;
    }
    error_set(err, STATUS_USAGE, "unknown backend '%s': known are %s", name, known);
    return NULL;
}

const PgOpener *pg_backend_of_starter(void) {
    for (int i = 0; i < OPENERS; i++)
        if (openers[i].started && openers[i].started()) return &openers[i];
    return NULL;
}

int pg_open_threads(int world, const PgOptions *options, ProcessGroup **groups, Error *err) {
    return pg_shm_threads(world, options, groups, err);
}
