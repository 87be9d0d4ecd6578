/* pg_shm.h: process groups over shared memory, for ranks that are processes of one host or threads
 * of one process. Users open a group by init_process_group or init_thread_groups
 * (ddp/rendezvous/init.h), or with pg_shm_threads.
 *
 * The memory is a memfd. It has no name in any folder, so the kernel frees it with the last process
 * that maps it, however that one ends. Rank 0 creates it and publishes an address (for instance in
 * the store): a path under /proc to rank 0's descriptor, and a random nonce that the memory
 * contains too, so that a stale address cannot lead into another group.
 */
#ifndef DDP_GROUP_SHM_PG_SHM_H
#define DDP_GROUP_SHM_PG_SHM_H

#include "ddp/group/process_group.h"

enum { PG_SHM_MAX_WORLD = 64 };

// Opens a group whose `world` ranks are threads of this process, all with the same options:
// groups[r] is rank r's, used and closed by its thread. Returns 0, or -1 with err filled and no
// group open.
int pg_shm_threads(int world, const PgOptions *options, ProcessGroup **groups, Error *err);

#endif
