/* ddp_overlap.c: a DistributedDataParallel with hooks, buckets and overlap. Gradients are copied
 * into the buckets and back.
 */
#include <stdlib.h>
#include <string.h>

#include "ddp/own/own_ddp.h"

typedef struct Bucket {
    size_t first, last; // range of gradients in the wrapper's list, without last
    size_t count;       // floats
    float *values;      // [count], in shared memory
    size_t pending;     // gradients that are not ready yet
    PgWork *work;
} Bucket;

typedef struct Ddp Ddp;

typedef struct Gradient {
    Ddp *ddp;
    const char *name;
    Tensor *parameter;
    size_t bucket;
    bool ready;
} Gradient;

struct Ddp {
    ProcessGroup *group;
    ReduceOp op;
    Device *device;
    NamedTensors state, buffers, parameters;
    Gradient *gradients; // in the reverse order of registration
    size_t count;
    Bucket *buckets;
    size_t bucket_count, started;
    bool reduces, buffers_due;
};

static int broadcast(ProcessGroup *group, const NamedTensors *tensors, Error *err) {
    for (size_t i = 0; i < tensors->count; i++) {
        Tensor *tensor = tensors->items[i].tensor;
        if (pg_run(group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0), err) != 0)
            return -1;
    }
    return 0;
}

// ---- during backward ----------------------------------------------------------------------------

static void copy_bucket(Ddp *ddp, const Bucket *bucket, bool back) {
    float *values = bucket->values;
    for (size_t i = bucket->first; i < bucket->last; i++) {
        Tensor *parameter = ddp->gradients[i].parameter;
        size_t bytes = tensor_bytes(parameter);
        if (back)
            device_copy(ddp->device, parameter->grad, ddp->device, values, bytes);
        else
            device_copy(ddp->device, values, ddp->device, parameter->grad, bytes);
        values += tensor_count(parameter);
    }
}

// Starts the buckets that are full, in order.
static int start_full(Ddp *ddp, Error *err) {
    for (; ddp->started < ddp->bucket_count; ddp->started++) {
        Bucket *bucket = &ddp->buckets[ddp->started];
        if (bucket->pending > 0) return 0;
        copy_bucket(ddp, bucket, false);
        Collective sum = pg_all_reduce(bucket->values, bucket->count, PG_F32, ddp->op);
        bucket->work = pg_start(ddp->group, pg_of_bucket(sum, ddp->started), err);
        if (!bucket->work) return -1;
    }
    return 0;
}

static int gradient_ready(void *context, Tensor *tensor, Error *err) {
    Gradient *gradient = context;
    Ddp *ddp = gradient->ddp;
    (void)tensor;
    if (!ddp->reduces) return 0;
    gradient->ready = true;
    ddp->buckets[gradient->bucket].pending--;
    return start_full(ddp, err);
}

// ---- functions of OwnDdp ------------------------------------------------------------------------

static void own_close(void *self) {
    Ddp *ddp = self;
    for (size_t i = 0; i < ddp->count; i++) ddp->gradients[i].parameter->on_ready = NULL;
    named_tensors_free(&ddp->state);
    named_tensors_free(&ddp->buffers);
    named_tensors_free(&ddp->parameters);
    free(ddp->gradients);
    free(ddp->buckets);
    free(ddp);
}

static void list_gradients(Ddp *ddp) {
    ddp->gradients = calloc(ddp->parameters.count, sizeof *ddp->gradients);
    for (size_t i = ddp->parameters.count; i-- > 0;) {
        NamedTensor *item = &ddp->parameters.items[i];
        if (!item->tensor->requires_grad) continue;
        Gradient *gradient = &ddp->gradients[ddp->count++];
        *gradient = (Gradient){.ddp = ddp, .name = item->name, .parameter = item->tensor};
        item->tensor->on_ready = gradient_ready;
        item->tensor->on_ready_context = gradient;
    }
}

static int make_buckets(Ddp *ddp, size_t bucket_bytes, Error *err) {
    ddp->buckets = calloc(ddp->count, sizeof *ddp->buckets);
    for (size_t i = 0; i < ddp->count; ddp->bucket_count++) {
        Bucket *bucket = &ddp->buckets[ddp->bucket_count];
        bucket->first = i;
        do {
            bucket->count += tensor_count(ddp->gradients[i].parameter);
            ddp->gradients[i++].bucket = ddp->bucket_count;
        } while (i < ddp->count && bucket->count * sizeof(float) < bucket_bytes);
        bucket->last = i;
        bucket->values = pg_shared_alloc(ddp->group, bucket->count * sizeof(float), err);
        if (!bucket->values) return -1;
    }
    return 0;
}

static void *own_open(Module *model, ProcessGroup *group, ReduceOp op, size_t bucket_bytes,
                      Error *err) {
    Ddp *ddp = calloc(1, sizeof *ddp);
    *ddp = (Ddp){.group = group, .op = op, .buffers_due = true};
    ddp->state = module_tensors(model, MODULE_STATE);
    ddp->buffers = module_tensors(model, MODULE_BUFFERS);
    ddp->parameters = module_tensors(model, MODULE_PARAMETERS);
    ddp->device = ddp->parameters.items[0].tensor->device;
    list_gradients(ddp);
    if (broadcast(group, &ddp->state, err) == 0 && make_buckets(ddp, bucket_bytes, err) == 0)
        return ddp;
    own_close(ddp);
    return NULL;
}

static int own_sync_buffers(void *self, Error *err) {
    Ddp *ddp = self;
    return broadcast(ddp->group, &ddp->buffers, err);
}

static int own_before_forward(void *self, bool reduces, Error *err) {
    Ddp *ddp = self;
    if (ddp->buffers_due && own_sync_buffers(ddp, err) != 0) return -1;
    ddp->reduces = ddp->buffers_due = reduces;
    ddp->started = 0;
    for (size_t i = 0; i < ddp->count; i++) ddp->gradients[i].ready = false;
    for (size_t b = 0; b < ddp->bucket_count; b++)
        ddp->buckets[b].pending = ddp->buckets[b].last - ddp->buckets[b].first;
    return 0;
}

static int own_finish_backward(void *self, Error *err) {
    Ddp *ddp = self;
    for (size_t i = 0; i < ddp->count; i++)
        if (!ddp->gradients[i].ready)
            return error_set(err, STATUS_FAILED, "rank %d: %s has no gradient", pg_rank(ddp->group),
                             ddp->gradients[i].name);
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        if (pg_work_wait(ddp->buckets[b].work, NULL, NULL, err) != 0) return -1;
        copy_bucket(ddp, &ddp->buckets[b], true);
    }
    return 0;
}

const OwnDdp own_ddp = {OWN_DDP_VERSION,     own_open,         own_before_forward,
                        own_finish_backward, own_sync_buffers, own_close};
