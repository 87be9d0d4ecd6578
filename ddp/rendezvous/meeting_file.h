/* meeting_file.h: how ranks that share a path, but no address, find their store (file:///path).
 *
 * The file is a log of lines, read and appended under a lock: who has come, where rank 0 serves the
 * store and with which token, who has left. The last one to leave removes it. So a file that is
 * there before the job starts is the sign of one that died: if one of the processes in it is gone,
 * that is said, instead of waiting for it.
 *
 * All ranks must be on one host for now: the store is at 127.0.0.1. The file is readable by its
 * owner only, for it holds the token.
 */
#ifndef DDP_RENDEZVOUS_MEETING_FILE_H
#define DDP_RENDEZVOUS_MEETING_FILE_H

#include <stdint.h>

#include "common/base/error.h"
#include "ddp/store/store.h"

typedef struct MeetingFile MeetingFile;

// Comes to the meeting as `rank` of `world_size`. NULL with err filled: the file is not one of
// these, belongs to somebody else, is left over from another run, or disagrees about who we are.
MeetingFile *meeting_file_join(const char *path, int rank, int world_size, uint64_t deadline_ns,
                               Error *err);
// Rank 0: says where the store is.
int meeting_file_publish(MeetingFile *file, int port, const char *token, uint64_t deadline_ns,
                         Error *err);
// The others: wait until it has.
int meeting_file_await(MeetingFile *file, int *port, char token[STORE_TOKEN_MAX + 1],
                       uint64_t deadline_ns, Error *err);
// Leaves; the last one removes the file. NULL is fine.
void meeting_file_leave(MeetingFile *file);

#endif
