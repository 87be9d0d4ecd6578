/* pg_shm.h: process groups over shared memory, for ranks that are processes of one host or threads
 * of one process. Users see ddp/group/process_group.h only.
 *
 * The memory is a memfd. It has no name in any folder, so the kernel frees it with the last process
 * that maps it, however that one ends. Rank 0 creates it and publishes an address (for instance in
 * the store): a path under /proc to rank 0's descriptor, and a random nonce that the memory
 * contains too, so that a stale address cannot lead into another group.
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

// Rank 0: creates the group's control segment and its address (printable characters). Returns 0, or
// -1 with err filled.
int pg_shm_create(int world, PgShmSegment **segment, char address[PG_SHM_ADDRESS_MAX], Error *err);

// The other ranks: open the segment of rank 0. NULL with err filled if there is none, or not this
// group's.
PgShmSegment *pg_shm_attach(const char *address, int world, Error *err);

// All ranks: wait until all have attached, and return the group. Takes the segment, also on failure
// (NULL, err filled).
ProcessGroup *pg_shm_open(PgShmSegment *segment, int rank, const PgOptions *options, Error *err);

// Opens a group whose `world` ranks are threads of this process, all with the same options:
// groups[r] is rank r's, used and closed by its thread. Returns 0, or -1 with err filled and no
// group open.
int pg_shm_threads(int world, const PgOptions *options, ProcessGroup **groups, Error *err);

#endif
