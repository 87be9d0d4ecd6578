/* join_ddp.c: the collectives of a DDP iteration, on active and on joined ranks. */
#include "ddp/features/join_ddp.h"

#include "common/base/memory.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/reducer.h"

// Collective, before a forward: the highest active rank, whose buffers are broadcast, and whether
// any rank's backward is reduced.
static int agree(ProcessGroup *group, bool trains, bool reduces, int *root, bool *anyone,
                 Error *err) {
    int32_t highest[] = {trains ? pg_rank(group) : -1, reduces};
    if (pg_run(group, pg_all_reduce(highest, 2, PG_I32, PG_MAX), err) != 0) return -1;
    *root = highest[0];
    *anyone = highest[1] > 0;
    return 0;
}

typedef struct JoinedDdp { // the state of the DdpIteration and of the hook
    Module *wrapper;
    Join *join;
} JoinedDdp;

static const char NAME[] = "join"; // of the DdpIteration

// A sharded optimizer step has collectives that a joined rank would have to mirror. 0 or -1.
static int check_hook(Module *wrapper, Error *err) {
    const CommHook *hook = &ddp_reducer(wrapper)->hook;
    if (!hook->sharding) return 0;
    return error_set(err, STATUS_FAILED, "Join cannot be combined with %s", hook->name);
}

static int before_forward(void *state, bool reduces, int *root, Error *err) {
    const JoinedDdp *joined = state;
    bool anyone;
    if (check_hook(joined->wrapper, err) != 0) return -1;
    if (join_notify(joined->join, joined->wrapper, err) != 0) return -1;
    return agree(ddp_group(joined->wrapper), true, reduces, root, &anyone, err);
}

// ---- averages over the active ranks -----------------------------------------------------------

static int start_sum(void *state, GradBucket *bucket, Error *err) {
    const JoinedDdp *joined = state;
    bucket->work =
        pg_start(ddp_group(joined->wrapper), grad_bucket_all_reduce(bucket, PG_F32, PG_SUM), err);
    return bucket->work ? 0 : -1;
}

static int finish_average(void *state, GradBucket *bucket, Error *err) {
    const JoinedDdp *joined = state;
    if (pg_work_wait(bucket->work, NULL, &bucket->done_ns, err) != 0) return -1;
    int ranks = join_divisor(joined->join);
    if (bucket->op == PG_AVG)
        device_kernels(bucket->device)
            ->elementwise->scale(bucket->buffer, (float)(1.0 / ranks), bucket->count);
    return 0;
}

static void set_join(void *state, Join *join) {
    Module *wrapper = state;
    Reducer *reducer = ddp_reducer(wrapper);
    if (!join) {
        if (reducer->hook.start == start_sum) reducer_remove_hook(reducer);
        reducer_remove_iteration(reducer, reducer_find_iteration(reducer, NAME));
        return;
    }
    JoinedDdp *joined = memory_zalloc(sizeof *joined);
    *joined = (JoinedDdp){wrapper, join};
    const CommHook average = {.name = "average of the active ranks",
                              .state = joined,
                              .start = start_sum,
                              .finish = finish_average};
    reducer_add_iteration(
        reducer,
        (DdpIteration){.name = NAME, .state = joined, .before = before_forward, .close = free});
    // A user's hook owns the averaging, as in PyTorch.
    if (join_divisor(join) > 0 && !reducer->hook.name) reducer_set_hook(reducer, average, NULL);
}

// ---- a rank that has joined -------------------------------------------------------------------

static void contribute_zeros(Reducer *reducer) {
    const NamedTensors *parameters = &reducer->slab.parameters;
    const ReadyPolicy *policy = &reducer->policy;
    for (size_t i = 0; i < parameters->count; i++) {
        Tensor *tensor = parameters->items[i].tensor;
        tensor->has_grad = false;
        device_kernels(tensor->device)->elementwise->fill(tensor->grad, 0.0f, tensor_count(tensor));
    }
    if (policy->backward_left_out) {
        policy->backward_left_out(policy->state);
        return;
    }
    for (size_t i = 0; i < parameters->count; i++) reducer_mark_ready(reducer, i);
}

static int mirror(void *state, Error *err) {
    Module *wrapper = state;
    Reducer *reducer = ddp_reducer(wrapper);
    int root;
    bool anyone;
    if (check_hook(wrapper, err) != 0) return -1;
    if (agree(ddp_group(wrapper), false, false, &root, &anyone, err) != 0) return -1;
    if (ddp_begin_forward(wrapper, anyone, anyone, root, err) != 0) return -1;
    if (!anyone) return 0;
    contribute_zeros(reducer);
    if (reducer_finish(reducer, NULL, err) != 0) return -1;
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
                      .set_join = set_join,
                      .mirror = mirror,
                      .end = end};
}
