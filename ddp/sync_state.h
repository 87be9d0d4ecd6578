/* sync_state.h: gives one rank's tensors to all: a list of tensors that can be broadcast again and
 * again.
 *
 * Whatever the dtype, they travel as bytes. Neighbours that fit together into the staging memory
 * travel in one broadcast (PyTorch's coalesced broadcast); a tensor that has no such neighbour goes
 * from where it lies.
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

// Small enough not to show in the peak of memory (PyTorch takes 250 MiB), large enough that what
// remains costs its bytes, not its calls.
#define SYNC_STATE_BYTES ((size_t)1 << 20)

// Takes the list. Staging memory is at most `limit` bytes.
SyncState sync_state_open(NamedTensors tensors, ProcessGroup *group, size_t limit);
// Makes all ranks' tensors those of rank `root`. Collective. Allocates nothing.
int sync_state_run(const SyncState *sync, int root, Error *err);
void sync_state_close(SyncState *sync);

#endif
