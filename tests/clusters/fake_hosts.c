/* fake_hosts.c: makes MPI's ranks on one machine believe that they are on FAKE_HOSTS machines, the
 * first ones on the first, and so on, or each on that of its letter in FAKE_LAYOUT ("aabb", for a
 * group of as many ranks). It stands between the backend and MPI (MPI's profiling
 * interface) and answers when the backend asks who shares a host: linked into a program, or loaded
 * before it (LD_PRELOAD).
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int fake_splits; // so far

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
