/* sync_state.h: broadcasts a list of tensors from one rank to all, repeatedly.
 *
 * Tensors of every dtype are sent as bytes. Consecutive tensors that fit into the staging memory
 * are packed into one broadcast (PyTorch's coalesced broadcast); a tensor packed with no other is
 * broadcast in place.
 */
#ifndef DDP_SYNC_STATE_H
#define DDP_SYNC_STATE_H

#include "common/nn/module.h"
#include "ddp/group/process_group.h"

typedef struct SyncState {
    ProcessGroup *group; // not owned
    NamedTensors tensors;
    Device *device; // of the staging memory
    void *staging;  // [staging_bytes]
    size_t staging_bytes;
    Slice *slices; // [tensors.count]: the tensors in units of 4 bytes; NULL: on several devices
} SyncState;

// Small against the peak memory (PyTorch: 250 MiB); large enough that bandwidth, not the number of
// calls, limits the broadcasts.
#define SYNC_STATE_BYTES ((size_t)1 << 20)

// Takes the list. Allocates at most `limit` bytes of staging memory.
SyncState sync_state_open(NamedTensors tensors, ProcessGroup *group, size_t limit);
// Broadcasts rank `root`'s tensors. Collective; allocates nothing. 0, or -1 with err filled.
int sync_state_run(const SyncState *sync, int root, Error *err);
void sync_state_close(SyncState *sync);

#endif
