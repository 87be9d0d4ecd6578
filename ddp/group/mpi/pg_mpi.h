/* pg_mpi.h: making process groups whose ranks are MPI's: processes on several machines, on the
 * engine that clusters have. The rest of the program only sees ddp/group/process_group.h.
 *
 * MPI starts the ranks (mpirun, or srun with MPI's plugin), so they know each other before they
 * meet:
 *
 *     all ranks                                 all ranks
 *     pg_mpi_prepare(rank, world)  MPI_Init;    pg_mpi_open(rank, world, options)
 *       is this the right mpirun?                 a communicator of the group's own
 *     pg_mpi_tell(text)            rank 0's word for all, before there is a group
 *
 * Sums are taken in rank order, with the functions of ddp/group/reduce.h, so they have the bits of
 * shm and of DataParallel. The sums of MPI_Allreduce have not: its order is its own.
 * pg_use_fast_sums (process_group.h) gives up the promise and takes it.
 *
 * Waiting never spins: whoever waits asks MPI, and sleeps 50 us. A thread that waits inside MPI
 * takes a core, and with it the computing that it should overlap with.
 *
 * When a group breaks, the ranks that wait are told why, by a message of its own tag, and not by an
 * abort key in the store, as nccl's are: MPI's ranks need the store to meet and not after it, and
 * it may be on a host that is gone. Each adds to that for whom it waits itself, for the first to
 * lose patience may have waited for a rank that waits for the lost one. Behind a dead connection no
 * word comes; there each rank's own deadline ends it. MPI can go no further then: a process whose
 * group is broken is ended, by MPI_Abort or else by _exit, if it has not ended itself within
 * PG_MPI_LINGER_S. One that ends well has MPI_Finalize called at its exit, which waits for the
 * others as long as a collective would: the timeout_s of pg_mpi_prepare.
 *
 * A build without MPI has absent.c in the place of the other files.
 */
#ifndef DDP_GROUP_MPI_PG_MPI_H
#define DDP_GROUP_MPI_PG_MPI_H

#include <stdbool.h>

#include "ddp/group/process_group.h"

#define PG_MPI_LINGER_S 5.0

bool pg_mpi_built(void); // is it part of this build?

// Starts MPI if nobody has, and refuses a process that is not what it should be: one of `world`
// ranks that one mpirun, or srun, of this build's MPI has started. The error says what to type.
// Returns 0, or -1 with err filled. Ends the process if MPI_Init does not return in time.
int pg_mpi_prepare(int rank, int world, double timeout_s, Error *err);

// Gives rank 0's text [capacity] to all ranks, by MPI. Collective. Ends the process if it does not
// return in time.
void pg_mpi_tell(char *text, int capacity, double timeout_s);

// Makes the group of the first `world` ranks. All of them call, after pg_mpi_prepare. Returns NULL
// with err filled after a failure.
ProcessGroup *pg_mpi_open(int rank, int world, const PgOptions *options, Error *err);

#endif
