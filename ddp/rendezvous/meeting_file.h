/* meeting_file.h: file:///path: ranks that share a path, but no address, find their store.
 *
 * The file is a log of lines, read and appended under a lock: ranks that joined, the store's port
 * and token, ranks that left. The last rank to leave removes it; a file that exists before the job
 * starts is stale, and if a process in it has died, the error says so at once.
 *
 * Limits: all ranks on one host (the store is at 127.0.0.1). The file is readable by its owner
 * only, because it holds the token.
 */
#ifndef DDP_RENDEZVOUS_MEETING_FILE_H
#define DDP_RENDEZVOUS_MEETING_FILE_H

#include <stdint.h>

#include "common/base/error.h"
#include "ddp/store/store.h"

typedef struct MeetingFile MeetingFile;

// Appends `rank` of `world_size`. NULL with err filled: the file has another content or another
// owner, is stale, or contradicts rank or world_size.
MeetingFile *meeting_file_join(const char *path, int rank, int world_size, uint64_t deadline_ns,
                               Error *err);
// Rank 0: appends the store's port and token.
int meeting_file_publish(MeetingFile *file, int port, const char *token, uint64_t deadline_ns,
                         Error *err);
// Other ranks: wait for these until the deadline.
int meeting_file_await(MeetingFile *file, int *port, char token[STORE_TOKEN_MAX + 1],
                       uint64_t deadline_ns, Error *err);
// Appends that this rank left; the last one removes the file. NULL does nothing.
void meeting_file_leave(MeetingFile *file);

#endif
