/* join_ddp.c: what a forward and backward of DistributedDataParallel communicate, from both sides.
 */
#include "ddp/join_ddp.h"

#include "ddp/distributed_data_parallel.h"

// What every rank does before a forward that some rank runs. reduce: this rank's backward is to be
// reduced; *anyone: some rank's is.
static int before_any_forward(Module *wrapper, bool trains, bool reduce, bool *anyone, Error *err) {
    ProcessGroup *group = ddp_group(wrapper);
    if (reducer_prepare(ddp_reducer(wrapper), reduce, err)) return -1;
    if (ddp_buffers_due(wrapper)) {
        int root = join_elect(group, trains, err);
        if (root < 0 || ddp_sync_buffers(wrapper, root, err)) return -1;
    }
    int32_t reducing = reduce;
    if (pg_run(group, pg_all_reduce(&reducing, 1, PG_I32, PG_SUM), err)) return -1;
    *anyone = reducing > 0;
    return 0;
}

static int before_forward(void *context, Module *wrapper, bool recording, Error *err) {
    Join *join = context;
    bool anyone;
    if (join_notify(join, wrapper, err)) return -1;
    reducer_set_divisor(ddp_reducer(wrapper), join_divisor(join));
    return before_any_forward(wrapper, true, recording && ddp_will_reduce(wrapper), &anyone, err);
}

static void attach(void *state, Join *join) {
    ddp_set_before_forward(state, join ? before_forward : NULL, join);
    if (!join) reducer_set_divisor(ddp_reducer(state), 0);
}

static void contribute_zeros(Reducer *reducer) {
    const NamedTensors *parameters = reducer_parameters(reducer);
    const ReadyPolicy *policy = reducer_policy(reducer);
    for (size_t i = 0; i < parameters->count; i++) {
        Tensor *tensor = parameters->items[i].tensor;
        tensor->has_grad = false;
        device_kernels(tensor->device)->fill(tensor->grad, 0.0f, tensor_count(tensor));
    }
    if (policy->shadow) {
        policy->shadow(policy->state);
        return;
    }
    for (size_t i = 0; i < parameters->count; i++) reducer_mark_ready(reducer, i);
}

static int shadow(void *state, Error *err) {
    Module *wrapper = state;
    Reducer *reducer = ddp_reducer(wrapper);
    const Join *join = ddp_before_forward_context(wrapper);
    bool anyone;
    if (before_any_forward(wrapper, false, false, &anyone, err)) return -1;
    ddp_set_reduced(wrapper, anyone);
    if (!anyone) return 0;
    reducer_set_divisor(reducer, join_divisor(join));
    if (reducer_prepare(reducer, true, err)) return -1;
    contribute_zeros(reducer);
    if (reducer_finish(reducer, NULL, err)) return -1;
    module_zero_grad(ddp_module(wrapper));
    return 0;
}

static int end(void *state, bool last, Error *err) {
    int root = join_elect(ddp_group(state), last, err);
    return root < 0 ? -1 : ddp_sync_module_states(state, root, err);
}

Joinable ddp_joinable(Module *wrapper) {
    return (Joinable){.state = wrapper,
                      .group = ddp_group(wrapper),
                      .attach = attach,
                      .shadow = shadow,
                      .end = end};
}
