/* mpi_absent.c: the mpi backend of a build without MPI: every function fails. */
#include "ddp/group/mpi/pg_mpi.h"

static int refuse(Error *err) {
    return error_set(err, STATUS_SKIPPED, "backend mpi is not built in");
}

bool pg_mpi_built(void) {
    return false;
}

bool pg_mpi_started(void) {
    return false;
}

int pg_mpi_prepare(int rank, int world, double timeout_s, Error *err) {
    (void)rank;
    (void)world;
    (void)timeout_s;
    return refuse(err);
}

void pg_mpi_tell(char *text, int capacity, double timeout_s) {
    (void)text;
    (void)capacity;
    (void)timeout_s;
}

ProcessGroup *pg_mpi_open(int rank, int world, const PgOptions *options, Error *err) {
    (void)rank;
    (void)world;
    (void)options;
    refuse(err);
    return NULL;
}
