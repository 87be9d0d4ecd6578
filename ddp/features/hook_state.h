/* hook_state.h: CommHook.save and load for hooks with state between steps.
 *
 * A hook lists its memory as named tensors of two kinds:
 *
 *            value                                         saved     if the number of ranks changed
 *   shared   equal on all ranks (a counter, PowerSGD's Q)  once      restored
 *   own      each rank's (PowerSGD's error)                [W, ...]  zeros
 *
 * Rank 0 writes the state of all ranks into the checkpoint. With the same number of ranks the run
 * continues bit for bit.
 */
#ifndef DDP_FEATURES_HOOK_STATE_H
#define DDP_FEATURES_HOOK_STATE_H

#include "common/base/log.h"
#include "common/tensor_files/safetensors.h"
#include "ddp/group/process_group.h"

typedef struct HookTensor {
    void *memory;    // the hook's, accessed between steps only
    Device *device;  // of the memory, for own float tensors; NULL: host memory
    SafeEntry entry; // without data; at most TENSOR_MAX_DIMS - 1 dimensions if own
    bool own;
} HookTensor;

typedef struct HookState {
    const char *hook_name; // for messages
    ProcessGroup *group;
    HookTensor *tensors; // [count], the caller's
    size_t count;
} HookState;

// Both take a HookState as void *, so that a hook whose state begins with one can use them as its
// save and load. Both return 0, or -1 with err filled.

// Collective. Sets rank 0's *content to the state of all ranks (safetensors_free), which refers to
// the hook's memory for shared tensors; the other ranks' is empty.
int hook_state_gather(void *hook_state, SafeTensors *content, Error *err);

// Restores this rank's tensors from the content that rank 0 gathered, which `path` names in
// messages. A missing tensor, another shape or a surplus tensor is an error, after which nothing is
// changed. Empty content (saved without this hook) leaves the initial state. The log receives that,
// and a change of the number of ranks.
int hook_state_restore(void *hook_state, const char *path, const SafeTensors *content, RunLog *log,
                       Error *err);

#endif
