/* pg_shm.h: making process groups that communicate through shared memory, for ranks that are
 * processes of one host, or threads of one process. The rest of the program only sees
 * ddp/group/process_group.h.
 *
 * The memory is a memfd: it has no name in any folder, so it is gone with the last process that
 * maps it, however that one ended. Rank 0 makes it and tells the others, by whatever means they
 * have (the store), an address: a path under /proc that leads to rank 0's descriptor, and a random
 * number that stands in the memory too, so that an old address can never lead into a wrong group.
 *
 *     rank 0                                       the others
 *     pg_shm_create(world, &segment, address)
 *     publish address ---------------------------> segment = pg_shm_attach(address, world)
 *     pg_shm_open(segment, 0, options)             pg_shm_open(segment, rank, options)
 */
#ifndef DDP_GROUP_SHM_PG_SHM_H
#define DDP_GROUP_SHM_PG_SHM_H

#include "ddp/group/process_group.h"
#include "ddp/group/shm/segment.h"

enum { PG_SHM_MAX_WORLD = 64, PG_SHM_ADDRESS_MAX = 96 };

// Rank 0: makes the group's control segment and its address (a string of printable characters).
// Returns 0, or -1 with err filled.
int pg_shm_create(int world, PgShmSegment **segment, char address[PG_SHM_ADDRESS_MAX], Error *err);

// The others: opens what rank 0 made. NULL with err filled if there is nothing, or something else.
PgShmSegment *pg_shm_attach(const char *address, int world, Error *err);

// All ranks: waits until all have come, and returns the group. Takes the segment, also when it
// fails (NULL, err filled).
ProcessGroup *pg_shm_open(PgShmSegment *segment, int rank, const PgOptions *options, Error *err);

// All `world` ranks of a group as threads of this process: groups[r] is for the thread that plays
// rank r, and is closed by it. All have the same options. Returns 0, or -1 with err filled and no
// group made.
int pg_shm_threads(int world, const PgOptions *options, ProcessGroup **groups, Error *err);

#endif
