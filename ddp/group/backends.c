/* backends.c: the list of backends. A new one is one more entry here and its own files: no other
 * file asks which backends this build has.
 */
#include "ddp/group/backends.h"

#include <string.h>

#include "ddp/group/mpi/pg_mpi.h"
#include "ddp/group/nccl/pg_nccl.h"
#include "ddp/group/shm/pg_shm.h"

_Static_assert((int)PG_ADDRESS_MAX >= (int)PG_NCCL_ADDRESS_MAX &&
                   (int)PG_ADDRESS_MAX >= (int)PG_SHM_ADDRESS_MAX,
               "an address has room");
_Static_assert((int)PG_CARD_MAX == (int)PG_NCCL_CARD_MAX, "a card has room");

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

static int nccl_create(PgPlace *place, Error *err) {
    return pg_nccl_create(place->address, err);
}

static ProcessGroup *nccl_open(PgPlace *place, Error *err) {
    const PgNcclPlace inside = {.address = place->address,
                                .device = place->device,
                                .rank = place->rank,
                                .world = place->world,
                                .options = place->options,
                                .store = place->store,
                                .leave = place->leave,
                                .context = place->context};
    return pg_nccl_open(&inside, err);
}

// ---- mpi --------------------------------------------------------------------------------------

static int mpi_refuse(const Device *device, Error *err) {
    return error_set(err, STATUS_USAGE,
                     "backend mpi cannot reach the memory of %s: use --backend nccl", device->name);
}

// MPI's ranks know each other already, so the address says nothing: it is the backend's name.
static int mpi_create(PgPlace *place, Error *err) {
    (void)err;
    strcpy(place->address, "mpi");
    return 0;
}

static ProcessGroup *mpi_open(PgPlace *place, Error *err) {
    return pg_mpi_open(place->rank, place->world, place->options, err);
}

// ---- shm --------------------------------------------------------------------------------------

static bool shm_built(void) {
    return true;
}

static int shm_refuse(const Device *device, Error *err) {
    return error_set(err, STATUS_USAGE,
                     "backend shm cannot reach the memory of %s: use --backend nccl", device->name);
}

static int shm_create(PgPlace *place, Error *err) {
    PgShmSegment *segment = NULL;
    int status = pg_shm_create(place->world, &segment, place->address, err);
    place->found = segment;
    return status;
}

static int shm_reach(PgPlace *place, Error *err) {
    place->found = pg_shm_attach(place->address, place->world, err);
    return place->found ? 0 : -1;
}

static ProcessGroup *shm_open_group(PgPlace *place, Error *err) {
    PgShmSegment *segment = place->found;
    place->found = NULL;
    return pg_shm_open(segment, place->rank, place->options, err);
}

static void shm_release(PgPlace *place) {
    segment_release(place->found);
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

int pg_open_threads(int world, const PgOptions *options, ProcessGroup **groups, Error *err) {
    return pg_shm_threads(world, options, groups, err);
}
