/* segment.h: memory that several processes map: a memfd, without a name in any folder. The kernel
 * frees it with its last mapping.
 */
#ifndef DDP_GROUP_SHM_SEGMENT_H
#define DDP_GROUP_SHM_SEGMENT_H

#include <pthread.h>
#include <stddef.h>

#include "common/base/error.h"

typedef struct PgShmSegment {
    unsigned char *base; // page aligned
    size_t bytes;
    int fd; // -1 once all have opened it
    pthread_mutex_t mutex;
    int users; // references in this process; under the mutex
} PgShmSegment;

// Rounds up to whole pages, at least one: blocks of that size share no page.
size_t segment_whole_pages(size_t bytes);
// Creates a segment, zeroed, with one user. NULL with err filled.
PgShmSegment *segment_create(size_t bytes, Error *err);
// Maps descriptor fd of process pid, which must be a segment of `bytes` bytes (0: any size). If
// /proc denies access, the error says what the processes must share.
PgShmSegment *segment_open(int pid, int fd, size_t bytes, Error *err);
// Adds a user in this process; returns the segment.
PgShmSegment *segment_share(PgShmSegment *segment);
// Closes the descriptor, so that no other process can open the segment any more.
void segment_seal(PgShmSegment *segment);
// Removes a user; the last one unmaps. NULL: no effect.
void segment_release(PgShmSegment *segment);

#endif
