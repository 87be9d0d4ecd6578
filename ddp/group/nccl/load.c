/* load.c: ddp/group/nccl/pg_nccl.h in programs: loads the backend, and NCCL with it, at the first
 * call. */
#include "common/base/shared_object.h"
#include "ddp/group/nccl/module.h"

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

ProcessGroup *pg_nccl_open(const PgNcclPlace *place, Error *err) {
    const PgNcclModule *module = load(err);
    if (module) return module->open(place, err);
    store_close(place->store);
    return NULL;
}
