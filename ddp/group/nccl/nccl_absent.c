/* nccl_absent.c: the nccl backend of a build without NCCL: every function fails. */
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

ProcessGroup *pg_nccl_open(const PgNcclEndpoint *endpoint, Error *err) {
    store_close(endpoint->store);
    error_set(err, STATUS_SKIPPED, "%s", ABSENT);
    return NULL;
}
