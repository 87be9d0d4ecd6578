/* nccl_module.h: the nccl backend as a shared object, libddpc_nccl.so, that programs load on first
 * use: the table that nccl_module.c exports and nccl_load.c calls.
 */
#ifndef DDP_GROUP_NCCL_MODULE_H
#define DDP_GROUP_NCCL_MODULE_H

#include "ddp/group/nccl/pg_nccl.h"

typedef struct PgNcclModule { // see pg_nccl.h
    int (*create)(char address[PG_NCCL_ADDRESS_MAX], Error *err);
    int (*card)(const Device *device, int rank, char card[PG_NCCL_CARD_MAX], Error *err);
    ProcessGroup *(*open)(const PgNcclEndpoint *endpoint, Error *err);
} PgNcclModule;

extern const PgNcclModule pg_nccl_module;

#endif
