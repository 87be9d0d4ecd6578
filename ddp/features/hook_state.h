/* hook_state.h: for hooks that carry something from step to step: their CommHook.save and load.
 *
 * Such a hook lists its memory: named tensors, each either the same on all ranks (a counter,
 * PowerSGD's Q) or each rank's own (its error). The first kind is saved once, the
 * second [W, ...], so that one file holds all ranks and rank 0 can write it with the rest of a
 * checkpoint. The same number of ranks continues bit for bit. Another number cannot: each rank's
 * own tensors start at zero.
 */
#ifndef DDP_FEATURES_HOOK_STATE_H
#define DDP_FEATURES_HOOK_STATE_H

#include "common/base/log.h"
#include "common/tensor_files/safetensors.h"
#include "ddp/group/process_group.h"

typedef struct HookTensor {
    void *memory;    // the hook's: read and written between two steps
    Device *device;  // the device that holds it, which only own floats may have; NULL: the host
    SafeEntry entry; // without data; at most TENSOR_MAX_DIMS - 1 dimensions if own
    bool own;        // each rank has a value of its own
} HookTensor;

typedef struct HookState {
    const char *hook_name; // for messages
    ProcessGroup *group;
    HookTensor *tensors; // [count], the caller's
    size_t count;
} HookState;

// Gathers the state on rank 0. There *content describes the state of all ranks, until
// safetensors_free: each rank's own tensors are then in rank 0's memory, too. On the other ranks it
// is empty. Collective.
int hook_state_gather(void *hook_state, SafeTensors *content, Error *err);

// Every rank takes its part of what rank 0 had gathered. All or nothing: a tensor that is missing,
// differs in shape or is too many is an error. If the content is empty (the run was without this
// hook), the hook starts anew. That, and another number of ranks, is said on the log; `path` is
// where the content is from.
int hook_state_restore(void *hook_state, const char *path, const SafeTensors *content, Log *log,
                       Error *err);

#endif
