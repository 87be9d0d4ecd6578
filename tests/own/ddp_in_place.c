/* ddp_in_place.c: a DistributedDataParallel whose gradients are views of the buckets: one block of
 * shared memory, in the reverse order of registration. A bucket is a range of the block, so no
 * gradient is copied.
 */
#include <stdlib.h>

#include "ddp/own/own_ddp.h"

enum { LINE = 16 }; // floats in a cache line; each gradient begins at one

typedef struct Slot Slot;
typedef struct Ddp {
    Module *model;
    ProcessGroup *group;
    ReduceOp op;
    NamedTensors parameters, buffers;
    Slot *slots; // [count]
    size_t count, started, bucket_count;
    size_t *ends;    // [bucket_count] one past the last slot of each bucket
    size_t *pending; // [bucket_count]
    PgWork **works;  // [bucket_count]
    float *slab;
    bool reduces;
    bool dirty; // the buffers have changed since the last broadcast
} Ddp;

struct Slot {
    Ddp *ddp;
    Tensor *tensor;
    size_t at, bucket; // at: offset in the slab, in floats
};

static size_t room(const Tensor *tensor) {
    return (tensor_count(tensor) + LINE - 1) / LINE * LINE;
}

static int broadcast(ProcessGroup *group, const NamedTensors *list, Error *err) {
    for (size_t i = 0; i < list->count; i++) {
        const Tensor *t = list->items[i].tensor;
        if (pg_run(group, pg_broadcast(t->data, tensor_bytes(t), PG_U8, 0), err) != 0) return -1;
    }
    return 0;
}

static int start(Ddp *ddp, size_t bucket, Error *err) {
    size_t first = bucket > 0 ? ddp->ends[bucket - 1] : 0, end = ddp->ends[bucket];
    size_t from = ddp->slots[first].at;
    const Slot *last = &ddp->slots[end - 1];
    size_t count = last->at + room(last->tensor) - from;
    ddp->works[bucket] = pg_start(
        ddp->group, pg_of_bucket(pg_all_reduce(ddp->slab + from, count, PG_F32, ddp->op), bucket),
        err);
    return ddp->works[bucket] ? 0 : -1;
}

static int ready(void *context, Tensor *tensor, Error *err) {
    Slot *slot = context;
    Ddp *ddp = slot->ddp;
    (void)tensor;
    if (!ddp->reduces) return 0;
    ddp->pending[slot->bucket]--;
    while (ddp->started < ddp->bucket_count && ddp->pending[ddp->started] == 0)
        if (start(ddp, ddp->started++, err) != 0) return -1;
    return 0;
}

static void *make(Module *model, ProcessGroup *group, ReduceOp op, size_t bytes, Error *err) {
    Ddp *ddp = calloc(1, sizeof *ddp);
    size_t floats = 0, in_bucket = 0;
    NamedTensors state = module_tensors(model, MODULE_STATE);
    *ddp = (Ddp){.model = model, .group = group, .op = op, .dirty = true};
    int status = broadcast(group, &state, err);
    named_tensors_free(&state);
    ddp->buffers = module_tensors(model, MODULE_BUFFERS);
    ddp->parameters = module_tensors(model, MODULE_PARAMETERS);
    size_t most = ddp->parameters.count;
    ddp->slots = calloc(most, sizeof *ddp->slots);
    ddp->ends = calloc(most, sizeof *ddp->ends);
    ddp->pending = calloc(most, sizeof *ddp->pending);
    ddp->works = calloc(most, sizeof(PgWork *));
    for (size_t i = most; i-- > 0;) {
        Tensor *tensor = ddp->parameters.items[i].tensor;
        if (!tensor->requires_grad) continue;
        if (ddp->bucket_count == 0 || in_bucket >= bytes) ddp->bucket_count++, in_bucket = 0;
        ddp->slots[ddp->count++] = (Slot){ddp, tensor, floats, ddp->bucket_count - 1};
        ddp->ends[ddp->bucket_count - 1] = ddp->count;
        floats += room(tensor);
        in_bucket += tensor_bytes(tensor);
    }
    ddp->slab = status == 0 ? pg_shared_alloc(group, floats * sizeof(float), err) : NULL;
    if (!ddp->slab) return NULL; // the error ends the program
    module_release_grads(model, &ddp->parameters);
    for (size_t i = 0; i < ddp->count; i++) {
        ddp->slots[i].tensor->grad = ddp->slab + ddp->slots[i].at;
        ddp->slots[i].tensor->on_ready = ready;
        ddp->slots[i].tensor->on_ready_context = &ddp->slots[i];
    }
    return ddp;
}

static int sync(void *self, Error *err) {
    Ddp *ddp = self;
    return broadcast(ddp->group, &ddp->buffers, err);
}

static int before(void *self, bool reduces, Error *err) {
    Ddp *ddp = self;
    if (ddp->dirty && sync(ddp, err) != 0) return -1;
    ddp->dirty = ddp->reduces = reduces;
    ddp->started = 0;
    for (size_t b = 0; b < ddp->bucket_count; b++)
        ddp->pending[b] = ddp->ends[b] - (b > 0 ? ddp->ends[b - 1] : 0);
    return 0;
}

static int finish(void *self, Error *err) {
    Ddp *ddp = self;
    for (size_t i = 0; i < ddp->parameters.count && ddp->started < ddp->bucket_count; i++)
        if (ddp->parameters.items[i].tensor->requires_grad &&
            !ddp->parameters.items[i].tensor->has_grad)
            return error_set(err, STATUS_FAILED, "rank %d: no gradient arrived for %s",
                             pg_rank(ddp->group), ddp->parameters.items[i].name);
    for (size_t b = 0; b < ddp->bucket_count; b++)
        if (pg_work_wait(ddp->works[b], NULL, NULL, err) != 0) return -1;
    return 0;
}

static void end(void *self) {
    Ddp *ddp = self;
    for (size_t i = 0; i < ddp->count; i++) {
        ddp->slots[i].tensor->on_ready = NULL;
        ddp->slots[i].tensor->grad = NULL;
    }
    module_own_grads(ddp->model);
    named_tensors_free(&ddp->parameters);
    named_tensors_free(&ddp->buffers);
    free(ddp->slots);
    free(ddp->ends);
    free(ddp->pending);
    free(ddp->works);
    free(ddp);
}

const OwnDdp own_ddp = {
    .version = OWN_DDP_VERSION,
    .open = make,
    .before_forward = before,
    .finish_backward = finish,
    .sync_buffers = sync,
    .close = end,
};
