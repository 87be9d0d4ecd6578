/* module.c: what the nccl backend gives to the program that loads it. */
#include "ddp/group/nccl/module.h"

const PgNcclModule pg_nccl_module = {
    .create = pg_nccl_create, .card = pg_nccl_card, .open = pg_nccl_open};
