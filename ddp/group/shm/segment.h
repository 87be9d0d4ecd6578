/* segment.h: memory that several processes map: a memfd, without a name in any folder. The kernel
 * frees it with its last mapping.
 */
#ifndef DDP_GROUP_SHM_SEGMENT_H
#define DDP_GROUP_SHM_SEGMENT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct PgShmSegment PgShmSegment;
struct PgShmSegment {
    unsigned char *base; // page aligned
    size_t bytes;
    int fd; // -1 once all have opened it
    pthread_mutex_t mutex;
    int users;               // references in this process; under the mutex
    PgShmSegment *announced; // segment_announce's, with a user of its own
};

// Rounds up to whole pages, at least one: blocks of that size share no page.
size_t segment_whole_pages(size_t bytes);
// Creates a segment, zeroed, with one user. NULL with err filled.
PgShmSegment *segment_create(size_t bytes, Error *err);
// Maps descriptor fd of process pid, which must be a segment of `bytes` bytes (0: any size). If
// /proc denies access, the error names the host, user and PID namespace that they must share.
PgShmSegment *segment_open(int pid, int fd, size_t bytes, Error *err);
// Adds a user in this process; returns the segment.
PgShmSegment *segment_share(PgShmSegment *segment);
// Closes the descriptor, so that no other process can open the segment any more.
void segment_seal(PgShmSegment *segment);
// Announces a segment to the threads that share `group`, and releases the previous announcement.
// NULL: only releases it. An announced segment stays mapped until the next announcement or the end
// of `group`, even if the caller releases it, because a slow thread may still call segment_share.
// One thread announces at a time.
void segment_announce(PgShmSegment *group, PgShmSegment *announced);
// Removes a user; the last one unmaps. NULL: no effect.
void segment_release(PgShmSegment *segment);

// One pg_shared_alloc: a block per rank. List entries; the list's owner frees it with blocks_free.
typedef struct SharedBlocks SharedBlocks;
struct SharedBlocks {
    uint64_t id;           // sequence number of its pg_shared_alloc, equal on all ranks; 0: private
    PgShmSegment *segment; // NULL: private memory at `base`, to be freed
    unsigned char *base;   // rank r's block begins at base + r * stride
    size_t stride;
    int rank; // this rank, among the ranks that share the segment
    SharedBlocks *next;
};

// Adds an entry to the list. Takes the segment, or without one the memory.
SharedBlocks *blocks_add(SharedBlocks **list, SharedBlocks blocks);
// The entry whose block of this rank contains [buffer, buffer + bytes), or NULL.
const SharedBlocks *blocks_find(const SharedBlocks *list, const void *buffer, size_t bytes);
// The offset of `buffer` in this rank's block.
size_t blocks_offset(const SharedBlocks *blocks, const void *buffer);
// The address in rank `rank`'s block of the counterpart of `buffer` in this rank's block.
void *blocks_peer(const SharedBlocks *blocks, const void *buffer, int rank);
void *blocks_own(const SharedBlocks *blocks); // the begin of this rank's block
void blocks_free(SharedBlocks **list);

#endif
