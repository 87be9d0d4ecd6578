/* fake_hosts.c: makes MPI's ranks on one machine appear to run on FAKE_HOSTS machines, in blocks of
 * rank order, or, with FAKE_LAYOUT, each on the machine of its letter ("aabb"; for groups with that
 * many ranks). It intercepts the backend's call that asks which ranks share a host (MPI's profiling
 * interface): linked into a program, or loaded before it (LD_PRELOAD).
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int fake_splits; // number of splits so far

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *part) {
    const char *hosts = getenv("FAKE_HOSTS"), *layout = getenv("FAKE_LAYOUT");
    int rank, size;
    fake_splits++;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    if (layout && (int)strlen(layout) == size)
        return PMPI_Comm_split(comm, layout[rank] - 'a', key, part);
    if (!hosts || size < atoi(hosts)) return PMPI_Comm_split_type(comm, type, key, info, part);
    return PMPI_Comm_split(comm, rank / (size / atoi(hosts)), key, part);
}
