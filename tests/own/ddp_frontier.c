/* ddp_frontier.c: a DistributedDataParallel whose gradients lie one after the other in one buffer,
 * in the order in which backward completes them. Buckets are ranges of the buffer. A frontier moves
 * over the gradients that are ready; each bucket whose end it passes starts, so buckets start in
 * order.
 */
#include <stdlib.h>

#include "ddp/own/own_ddp.h"

typedef struct Ddp Ddp;

typedef struct Slot { // one gradient
    Ddp *ddp;
    Tensor *tensor;
    const char *name;
    size_t offset, count; // in the flat buffer
    bool last;            // the last one of its bucket
    bool ready;
} Slot;

typedef struct Bucket {
    size_t offset, count;
    PgWork *work;
} Bucket;

struct Ddp {
    Device *device;
    ProcessGroup *group;
    ReduceOp op;
    NamedTensors parameters, buffers;
    Slot *slots;
    size_t slot_count, frontier;
    Bucket *buckets;
    size_t bucket_count, started;
    float *flat;
    size_t flat_bytes;
    bool reduces, buffers_are_old;
};

static int broadcast(Ddp *ddp, const NamedTensors *tensors, Error *err) {
    for (size_t i = 0; i < tensors->count; i++) {
        Tensor *t = tensors->items[i].tensor;
        if (pg_run(ddp->group, pg_broadcast(t->data, tensor_bytes(t), PG_U8, 0), err) != 0)
            return error_prefix(err, "broadcast of %s", tensors->items[i].name);
    }
    return 0;
}

static int start_bucket(Ddp *ddp, Error *err) {
    Bucket *bucket = &ddp->buckets[ddp->started];
    Collective sum = pg_all_reduce(ddp->flat + bucket->offset, bucket->count, PG_F32, ddp->op);
    bucket->work = pg_start(ddp->group, pg_of_bucket(sum, ddp->started), err);
    if (!bucket->work) return -1;
    ddp->started++;
    return 0;
}

static int gradient_ready(void *context, Tensor *tensor, Error *err) {
    Slot *slot = context;
    Ddp *ddp = slot->ddp;
    if (!ddp->reduces) return 0;
    slot->ready = true;
    device_copy(ddp->device, ddp->flat + slot->offset, ddp->device, tensor->grad,
                slot->count * sizeof(float));
    while (ddp->frontier < ddp->slot_count && ddp->slots[ddp->frontier].ready)
        if (ddp->slots[ddp->frontier++].last && start_bucket(ddp, err) != 0) return -1;
    return 0;
}

static void lay_out(Ddp *ddp, size_t bucket_bytes) {
    size_t at = 0;
    ddp->slots = calloc(ddp->parameters.count + 1, sizeof *ddp->slots);
    ddp->buckets = calloc(ddp->parameters.count + 1, sizeof *ddp->buckets);
    for (size_t i = ddp->parameters.count; i-- > 0;) {
        const NamedTensor *named = &ddp->parameters.items[i];
        if (!named->tensor->requires_grad) continue;
        Bucket *bucket = &ddp->buckets[ddp->bucket_count];
        Slot *slot = &ddp->slots[ddp->slot_count++];
        *slot = (Slot){.ddp = ddp,
                       .tensor = named->tensor,
                       .name = named->name,
                       .offset = at,
                       .count = tensor_count(named->tensor)};
        if (bucket->count == 0) bucket->offset = at;
        at += slot->count;
        bucket->count += slot->count;
        if (bucket->count * sizeof(float) >= bucket_bytes) {
            slot->last = true;
            ddp->bucket_count++;
        }
    }
    if (ddp->slot_count > 0 && !ddp->slots[ddp->slot_count - 1].last) {
        ddp->slots[ddp->slot_count - 1].last = true;
        ddp->bucket_count++;
    }
    ddp->flat_bytes = at * sizeof(float);
    ddp->flat = device_alloc(ddp->device, ddp->flat_bytes);
}

static void own_close(void *self) {
    Ddp *ddp = self;
    for (size_t i = 0; i < ddp->started; i++)
        if (ddp->buckets[i].work) pg_work_wait(ddp->buckets[i].work, NULL, NULL, NULL);
    for (size_t i = 0; i < ddp->slot_count; i++) {
        ddp->slots[i].tensor->on_ready = NULL;
        ddp->slots[i].tensor->on_ready_context = NULL;
    }
    if (ddp->device) device_free(ddp->device, ddp->flat, ddp->flat_bytes);
    named_tensors_free(&ddp->parameters);
    named_tensors_free(&ddp->buffers);
    free(ddp->slots);
    free(ddp->buckets);
    free(ddp);
}

static void *own_open(Module *model, ProcessGroup *group, ReduceOp op, size_t bucket_bytes,
                      Error *err) {
    Ddp *ddp = calloc(1, sizeof *ddp);
    ddp->group = group;
    ddp->op = op;
    ddp->parameters = module_tensors(model, MODULE_PARAMETERS);
    ddp->buffers = module_tensors(model, MODULE_BUFFERS);
    if (broadcast(ddp, &ddp->parameters, err) != 0 || broadcast(ddp, &ddp->buffers, err) != 0) {
        own_close(ddp);
        return NULL;
    }
    if (ddp->parameters.count > 0) {
        ddp->device = ddp->parameters.items[0].tensor->device;
        lay_out(ddp, bucket_bytes);
    }
    for (size_t i = 0; i < ddp->slot_count; i++) {
        ddp->slots[i].tensor->on_ready_context = &ddp->slots[i];
        ddp->slots[i].tensor->on_ready = gradient_ready;
    }
    return ddp;
}

static int own_sync_buffers(void *self, Error *err) {
    Ddp *ddp = self;
    return broadcast(ddp, &ddp->buffers, err);
}

static int own_before_forward(void *self, bool reduces, Error *err) {
    Ddp *ddp = self;
    ddp->reduces = reduces;
    ddp->frontier = ddp->started = 0;
    for (size_t i = 0; i < ddp->slot_count; i++) ddp->slots[i].ready = false;
    if (ddp->buffers_are_old && own_sync_buffers(self, err) != 0) return -1;
    ddp->buffers_are_old = reduces;
    return 0;
}

static int own_finish_backward(void *self, Error *err) {
    Ddp *ddp = self;
    int failed = 0;
    for (size_t i = 0; i < ddp->slot_count; i++)
        if (!ddp->slots[i].ready)
            return error_set(err, STATUS_FAILED, "the loss does not depend on %s",
                             ddp->slots[i].name);
    for (size_t i = 0; i < ddp->started; i++) {
        PgWork *work = ddp->buckets[i].work;
        ddp->buckets[i].work = NULL;
        if (pg_work_wait(work, NULL, NULL, err) != 0) failed = -1;
    }
    for (size_t i = 0; i < ddp->slot_count && !failed; i++) {
        const Slot *slot = &ddp->slots[i];
        device_copy(ddp->device, slot->tensor->grad, ddp->device, ddp->flat + slot->offset,
                    slot->count * sizeof(float));
    }
    return failed;
}

const OwnDdp own_ddp = {OWN_DDP_VERSION,     own_open,         own_before_forward,
                        own_finish_backward, own_sync_buffers, own_close};
