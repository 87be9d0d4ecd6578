/* nccl_load.c: the functions of pg_nccl.h in programs: load the backend, a shared object that links
 * NCCL, at the first call.
 */
#include "common/base/shared_object.h"
#include "ddp/group/group_internal.h"
#include "ddp/group/nccl/nccl_module.h"

static const PgNcclModule *load(Error *err) {
    return shared_object_find("libddpc_nccl.so", "pg_nccl_module", err);
}

bool pg_nccl_built(void) {
    return true;
}

int pg_nccl_create(char address[PG_NCCL_ADDRESS_MAX], Error *err) {
    const PgNcclModule *module = load(err);
    return module ? module->create(address, err) : -1;
}

int pg_nccl_card(const Device *device, int rank, char card[PG_NCCL_CARD_MAX], Error *err) {
    const PgNcclModule *module = load(err);
    return module ? module->card(device, rank, card, err) : -1;
}

ProcessGroup *pg_nccl_open(const PgNcclEndpoint *endpoint, Error *err) {
    const PgNcclModule *module = load(err);
    if (!module) {
        store_close(endpoint->store);
        return NULL;
    }
    ProcessGroup *group = module->open(endpoint, err);
    if (group) pg_list_open(group);
    return group;
}
