/* nccl_load.c: the nccl backend in programs: loads the backend, a shared object that links NCCL, at
 * the first call. The object exports a PgOpener of its own, pg_nccl_module.
 */
#include <stdlib.h>

#include "common/base/shared_object.h"
#include "ddp/group/backends.h"
#include "ddp/group/group_internal.h"

// By default NCCL (2.22 or later) connects the ranks in the first collective of each algorithm,
// which delays each group's first steps. 0 connects them when the group is opened.
static void ask_for_connections(void) {
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
}

static const PgOpener *load(Error *err) {
    ask_for_connections();
    return shared_object_find("libddpc_nccl.so", "pg_nccl_module", err);
}

static int load_and_create(PgEndpoint *endpoint, Error *err) {
    const PgOpener *module = load(err);
    return module ? module->create(endpoint, err) : -1;
}

static int load_and_card(const Device *device, int rank, char card[PG_CARD_MAX], Error *err) {
    const PgOpener *module = load(err);
    return module ? module->card(device, rank, card, err) : -1;
}

static ProcessGroup *load_and_open(PgEndpoint *endpoint, Error *err) {
    const PgOpener *module = load(err);
    if (!module) {
        store_close(endpoint->store);
        return NULL;
    }
    ProcessGroup *group = module->open(endpoint, err);
    if (group) pg_list_open(group);
    return group;
}

const PgOpener pg_opener_nccl = {.name = "nccl",
                                 .built = true,
                                 .accesses_gpus = true,
                                 .keeps_store = true,
                                 .card = load_and_card,
                                 .create = load_and_create,
                                 .open = load_and_open};
