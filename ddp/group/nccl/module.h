/* module.h: the nccl backend as a part of the program that is loaded when it is needed: what
 * libddpc_nccl.so (module.c) gives to load.c, which has the functions of pg_nccl.h in programs.
 */
#ifndef DDP_GROUP_NCCL_MODULE_H
#define DDP_GROUP_NCCL_MODULE_H

#include "ddp/group/nccl/pg_nccl.h"

typedef struct PgNcclModule { // see pg_nccl.h
    int (*create)(char address[PG_NCCL_ADDRESS_MAX], Error *err);
    int (*card)(const Device *device, int rank, char card[PG_NCCL_CARD_MAX], Error *err);
    ProcessGroup *(*open)(const PgNcclPlace *place, Error *err);
} PgNcclModule;

extern const PgNcclModule pg_nccl_module;

#endif
