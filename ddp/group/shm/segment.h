/* segment.h: a piece of memory that several processes map: a memfd, without a name in any
 * folder. Whoever maps it keeps it alive; nothing is left when the last one is gone.
 */
#ifndef DDP_GROUP_SHM_SEGMENT_H
#define DDP_GROUP_SHM_SEGMENT_H

#include <pthread.h>
#include <stddef.h>

#include "common/base/error.h"

typedef struct PgShmSegment {
    unsigned char *base; // page aligned
    size_t bytes;
    int fd; // -1 once nobody needs to open it any more
    pthread_mutex_t mutex;
    int users; // threads of this process that hold it, under the mutex
} PgShmSegment;

// A new one, zeroed, with one user. NULL with err filled.
PgShmSegment *segment_create(size_t bytes, Error *err);
// Maps descriptor fd of process pid, which must be one of these with `bytes` bytes (0: any size).
// The error says who may not see whom when /proc does not let us in.
PgShmSegment *segment_open(int pid, int fd, size_t bytes, Error *err);
// One more user in this process: returns the same segment.
PgShmSegment *segment_share(PgShmSegment *segment);
// Closes the descriptor: from now on no other process can open the segment.
void segment_seal(PgShmSegment *segment);
// One user less; the last one unmaps. NULL is fine.
void segment_release(PgShmSegment *segment);

#endif
