/* pg_mpi.h: process groups whose ranks are MPI's: processes on several machines. Users see
 * ddp/group/process_group.h only.
 *
 * MPI starts the ranks (mpirun, or srun with MPI's plugin) and connects them:
 *
 *     all ranks                                 all ranks
 *     pg_mpi_prepare(rank, world)  MPI_Init;    pg_mpi_open(rank, world, options)
 *       checks the launcher                       a communicator for the group
 *     pg_mpi_tell(text)            broadcasts rank 0's text before there is a group
 *
 * Sums are taken in rank order, with the functions of ddp/group/reduce.h, so they equal shm's and
 * DataParallel's bit for bit. MPI_Allreduce's do not, because its order is unspecified;
 * pg_use_fast_sums (process_group.h) selects it.
 *
 * Waits poll MPI and sleep 50 us between two polls. Blocking inside MPI would spin on a core, and
 * slow down the computation that communication should overlap with.
 *
 * Failures: a rank that breaks the group sends the error to all others, in a message with its own
 * tag. (nccl uses a key in the store. MPI's ranks need the store for rendezvous only, and its host
 * may be gone.) Each receiver appends for which ranks it waits itself, because the first rank to
 * time out may have waited for a rank that waits for the lost one. A rank behind a dead connection
 * ends at its own deadline. MPI cannot continue then: a process with a broken group that does not
 * end by itself within PG_MPI_LINGER_S is ended by MPI_Abort or else by _exit. A process that ends
 * normally calls MPI_Finalize at exit, which waits for the other ranks for at most the timeout_s of
 * pg_mpi_prepare.
 *
 * A build without MPI compiles mpi_absent.c instead of the other files.
 */
#ifndef DDP_GROUP_MPI_PG_MPI_H
#define DDP_GROUP_MPI_PG_MPI_H

#include <stdbool.h>

#include "ddp/group/process_group.h"

#define PG_MPI_LINGER_S 5.0

bool pg_mpi_built(void);   // is compiled in
bool pg_mpi_started(void); // mpirun of this build's MPI, or srun, started this process

// Starts MPI unless it runs already, and checks that this process is one of `world` ranks that one
// mpirun, or srun, of this build's MPI started. Otherwise the error says what to type. Returns 0,
// or -1 with err filled. Ends the process if MPI_Init does not return in time.
int pg_mpi_prepare(int rank, int world, double timeout_s, Error *err);

// Broadcasts rank 0's text [capacity] by MPI. Collective. Ends the process if MPI does not return
// in time.
void pg_mpi_tell(char *text, int capacity, double timeout_s);

// Opens a group of the first `world` ranks. Collective over them, after pg_mpi_prepare. Returns
// NULL with err filled on failure.
ProcessGroup *pg_mpi_open(int rank, int world, const PgOptions *options, Error *err);

#endif
