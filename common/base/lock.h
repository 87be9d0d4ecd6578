/* lock.h: mutual exclusion of processes that write the same path.
 *
 * The lock is flock on a small file, whose text names the holder. The kernel releases it when the
 * process ends for any reason, so the file of a killed job may stay: the next job locks it again.
 */
#ifndef COMMON_BASE_LOCK_H
#define COMMON_BASE_LOCK_H

#include <stdbool.h>

#include "common/base/error.h"

typedef struct FileLock FileLock;

// Creates and locks the file `path`; retries for a second, because a killed holder keeps its lock
// until its memory is freed. Returns NULL with err filled (STATUS_USAGE) if another process holds
// the lock ("WHAT: in use by HOLDER"; `what` is an option, "--out DIR") or if the file cannot be
// created.
FileLock *lock_take(const char *path, const char *what, Error *err);
// False if the file system has no locks: then no other process is excluded.
bool lock_is_held(const FileLock *lock);
// Removes the file and releases the lock. lock may be NULL.
void lock_release(FileLock *lock);

#endif
