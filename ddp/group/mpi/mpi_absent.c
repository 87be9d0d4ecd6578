/* mpi_absent.c: the mpi backend of a build without MPI. */
#include "ddp/group/backends.h"

const PgOpener pg_opener_mpi = {.name = "mpi", .needs = "cmake -DWITH_MPI=ON"};
