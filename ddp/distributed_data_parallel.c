/* distributed_data_parallel.c: the wrapper: verifies the model and broadcasts it once; from then on
 * the Reducer reduces the gradients.
 *
 * Ranks stay equal, in the order of PyTorch's constructor, because the models are verified to be
 * the same (else every rank's error names the tensor that differs), all ranks start from rank 0's
 * state, and every step applies the same reduced gradients. Parameters are not compared later: a
 * rank that changes its own otherwise stays different.
 */
#include "ddp/distributed_data_parallel.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/nn/tape.h"
#include "ddp/agree_kernels.h"
#include "ddp/reducer.h"
#include "ddp/sync_state.h"
#include "ddp/verify_model.h"

typedef struct Ddp {
    ProcessGroup *group; // not owned
    DdpConfig config;
    Reducer *reducer;
    SyncState buffers;
    bool no_sync; // the next forward's backward is not reduced
    bool reduces; // the last forward's backward is reduced: buffers are broadcast again
} Ddp;

DdpConfig ddp_config_default(void) {
    return (DdpConfig){.bucket_cap_mb = -1, .overlap = true, .broadcast_buffers = true};
}

// ---- construction ---------------------------------------------------------------------------

static bool is_ignored(const DdpConfig *config, const char *name) {
    for (const char *const *next = config->ignored; next && *next; next++)
        if (strcmp(*next, name) == 0) return true;
    return false;
}

// The module's tensors to broadcast or, if `trained`, to reduce; the caller frees the list.
static NamedTensors tensors_of(Module *module, int which, bool trained, const DdpConfig *config) {
    NamedTensors tensors = module_tensors(module, which);
    size_t kept = 0;
    for (size_t i = 0; i < tensors.count; i++) {
        bool wanted = !trained || tensors.items[i].tensor->requires_grad;
        if (wanted && !is_ignored(config, tensors.items[i].name))
            tensors.items[kept++] = tensors.items[i];
    }
    tensors.count = kept;
    return tensors;
}

static int verify(Module *module, ProcessGroup *group, const DdpConfig *config, Error *err) {
    NamedTensors parameters = tensors_of(module, MODULE_PARAMETERS, false, config);
    NamedTensors buffers = tensors_of(module, MODULE_BUFFERS, false, config);
    int status = verify_model(&parameters, &buffers, group, err);
    named_tensors_free(&parameters);
    named_tensors_free(&buffers);
    return status;
}

static int broadcast_state(Module *module, ProcessGroup *group, const DdpConfig *config, int root,
                           Error *err) {
    SyncState state =
        sync_state_open(tensors_of(module, MODULE_STATE, false, config), group, SYNC_STATE_BYTES);
    int status = sync_state_run(&state, root, err);
    sync_state_close(&state);
    return status;
}

static Reducer *create_reducer(Module *module, ProcessGroup *group, const DdpConfig *config,
                               Error *err) {
    const ReducerConfig details = {.bucket_cap_mb = config->bucket_cap_mb,
                                   .overlap = config->overlap,
                                   .op = config->global_normalization ? PG_SUM : PG_AVG};
    NamedTensors parameters = tensors_of(module, MODULE_PARAMETERS, true, config);
    module_release_grads(module, &parameters);
    return reducer_create(parameters, group, &details, err);
}

// ---- the wrapper ----------------------------------------------------------------------------

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    Ddp *ddp = self->state;
    bool reduces = tape->recording && !ddp->no_sync;
    int root = 0;
    Error err = {0};
    Phase phase = profile_enter(tape->profile, PHASE_REPLICATE);
    int status = reducer_before_forward(ddp->reducer, reduces, &root, &err);
    if (status == 0) status = ddp_begin_forward(self, tape->recording, reduces, root, &err);
    profile_leave(tape->profile, phase);
    if (status) return tape_fail(tape, "DistributedDataParallel", "%s", err.message);
    Tensor *y = module_forward(self->children[0], tape, x);
    reducer_forward_done(ddp->reducer);
    return y;
}

static void free_ddp(Ddp *ddp) {
    reducer_close(ddp->reducer);
    sync_state_close(&ddp->buffers);
    pg_release(ddp->group);
    free(ddp);
}

static void destroy(Module *self) {
    free_ddp(self->state);
}

Module *distributed_data_parallel(Module *module, ProcessGroup *group, const DdpConfig *config,
                                  Error *err) {
    Ddp *ddp = memory_zalloc(sizeof *ddp);
    *ddp = (Ddp){.group = group, .config = *config, .reduces = true};
    pg_hold(group);
    if (verify(module, group, config, err) == 0 && agree_kernels(module, group, err) == 0 &&
        broadcast_state(module, group, config, 0, err) == 0)
        ddp->reducer = create_reducer(module, group, config, err);
    if (!ddp->reducer) {
        module_own_grads(module);
        free_ddp(ddp);
        return NULL;
    }
    ddp->buffers =
        sync_state_open(tensors_of(module, MODULE_BUFFERS, false, config), group, SYNC_STATE_BYTES);
    Module *wrapper = module_create("DistributedDataParallel", forward);
    wrapper->state = ddp;
    wrapper->destroy = destroy;
    module_add(wrapper, "", module);
    return wrapper;
}

static Ddp *ddp_of(Module *wrapper) {
    CHECK(wrapper->forward == forward, "a %s is no DistributedDataParallel", wrapper->type);
    return wrapper->state;
}

Module *ddp_unwrap(Module *wrapper) {
    free_ddp(ddp_of(wrapper));
    Module *module = wrapper->children[0];
    wrapper->destroy = NULL;
    wrapper->child_count = 0;
    module->owned = false;
    module_close(wrapper);
    module_own_grads(module);
    return module;
}

const DdpConfig *ddp_config(Module *wrapper) {
    return &ddp_of(wrapper)->config;
}
Reducer *ddp_reducer(Module *wrapper) {
    return ddp_of(wrapper)->reducer;
}
ProcessGroup *ddp_group(Module *wrapper) {
    return ddp_of(wrapper)->group;
}
Module *ddp_module(Module *wrapper) {
    return ddp_of(wrapper) ? wrapper->children[0] : NULL;
}

int ddp_register_comm_hook(Module *wrapper, CommHook hook, Error *err) {
    return reducer_set_hook(ddp_reducer(wrapper), hook, err);
}

// ---- an iteration ---------------------------------------------------------------------------

bool ddp_no_sync_begin(Module *wrapper) {
    bool before = ddp_of(wrapper)->no_sync;
    ddp_of(wrapper)->no_sync = true;
    return before;
}
void ddp_no_sync_end(Module *wrapper, bool before) {
    ddp_of(wrapper)->no_sync = before;
}

int ddp_begin_forward(Module *wrapper, bool recording, bool reduces, int root, Error *err) {
    Ddp *ddp = ddp_of(wrapper);
    if (recording && reducer_prepare(ddp->reducer, reduces, err) != 0) return -1;
    // As in PyTorch, in evaluation, too, but only if the previous forward's gradients are reduced.
    bool due = ddp->config.broadcast_buffers && ddp->reduces;
    if (due && ddp_sync_buffers(wrapper, root, err) != 0) return -1;
    ddp->reduces = reduces;
    return 0;
}

int ddp_finish_backward(Module *wrapper, Profile *profile, Error *err) {
    Ddp *ddp = ddp_of(wrapper);
    if (!ddp->reduces && !ddp->reducer->expecting) return 0;
    if (reducer_finish(ddp->reducer, profile, err) != 0) return -1;
    reducer_after_backward(ddp->reducer);
    return 0;
}

int ddp_sync_buffers(Module *wrapper, int root, Error *err) {
    return sync_state_run(&ddp_of(wrapper)->buffers, root, err);
}

int ddp_sync_module_states(Module *wrapper, int root, Error *err) {
    Ddp *ddp = ddp_of(wrapper);
    return broadcast_state(ddp_module(wrapper), ddp->group, &ddp->config, root, err);
}
