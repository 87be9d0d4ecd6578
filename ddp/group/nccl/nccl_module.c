/* nccl_module.c: the table that libddpc_nccl.so exports to nccl_load.c. */
#include "ddp/group/nccl/nccl_module.h"

#include "ddp/group/group_internal.h"

static ProcessGroup *open_unlisted(const PgNcclEndpoint *endpoint, Error *err) {
    ProcessGroup *group = pg_nccl_open(endpoint, err);
    if (group) (void)pg_unlist_open(group);
    return group;
}

const PgNcclModule pg_nccl_module = {
    .create = pg_nccl_create, .card = pg_nccl_card, .open = open_unlisted};
