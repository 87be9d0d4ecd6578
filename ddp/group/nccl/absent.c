/* absent.c: what ddp/group/nccl/pg_nccl.h says in a build without NCCL. */
#include "ddp/group/nccl/pg_nccl.h"

static const char ABSENT[] = "backend nccl is not built in (cmake -DWITH_CUDA=ON -DWITH_NCCL=ON)";

bool pg_nccl_built(void) {
    return false;
}

int pg_nccl_create(char address[PG_NCCL_ADDRESS_MAX], Error *err) {
    address[0] = '\0';
    return error_set(err, STATUS_SKIPPED, "%s", ABSENT);
}

int pg_nccl_card(const Device *device, int rank, char card[PG_NCCL_CARD_MAX], Error *err) {
    (void)device, (void)rank;
    card[0] = '\0';
    return error_set(err, STATUS_SKIPPED, "%s", ABSENT);
}

ProcessGroup *pg_nccl_open(const PgNcclPlace *place, Error *err) {
    store_close(place->store);
    error_set(err, STATUS_SKIPPED, "%s", ABSENT);
    return NULL;
}
