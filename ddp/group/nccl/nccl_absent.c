/* nccl_absent.c: the nccl backend of a build without NCCL. */
#include "ddp/group/backends.h"

const PgOpener pg_opener_nccl = {
    .name = "nccl", .needs = "cmake -DWITH_CUDA=ON -DWITH_NCCL=ON", .accesses_gpus = true};
