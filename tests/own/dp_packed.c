/* dp_packed.c: a DataParallel that copies all weights to a device as one block. Gradients are
 * copied back tensor by tensor.
 */
#include <stdlib.h>
#include <string.h>

#include "dp/own/own_dp.h"

typedef struct Worker { // one device
    Device *device;
    Module *replica;
    NamedTensors tensors; // the replica's
    Tape *tape;           // of the current forward
    Tensor *x, *y;
    char *block; // the copied weights; NULL on the first device
} Worker;

typedef struct Dp {
    NamedTensors model;
    size_t *at; // [model.count + 1] byte offset of each tensor in a block
    int count, busy;
    Worker workers[];
} Dp;

static void *make(Module *model, Device *const *devices, int count, Error *err) {
    Dp *dp = calloc(1, sizeof *dp + (size_t)count * sizeof *dp->workers);
    if (!dp) return error_null(err, STATUS_FAILED, "no memory");
    dp->count = count;
    dp->model = module_tensors(model, MODULE_STATE);
    dp->at = calloc(dp->model.count + 1, sizeof *dp->at);
    for (size_t k = 0; k < dp->model.count; k++)
        dp->at[k + 1] = dp->at[k] + (tensor_bytes(dp->model.items[k].tensor) + 63) / 64 * 64;
    for (int i = 0; i < count; i++) {
        Worker *worker = &dp->workers[i];
        worker->device = devices[i];
        worker->replica = module_replica(model, devices[i]);
        worker->tensors = module_tensors(worker->replica, MODULE_STATE);
    }
    return dp;
}

static void end(void *self) {
    Dp *dp = self;
    for (int i = 0; i < dp->count; i++) {
        named_tensors_free(&dp->workers[i].tensors);
        module_close(dp->workers[i].replica);
    }
    named_tensors_free(&dp->model);
    free(dp->at);
    free(dp);
}

static void go_forward(void *argument) {
    Worker *w = argument;
    w->y = module_forward(w->replica, w->tape, w->x);
}

static void go_backward(void *argument) {
    Worker *w = argument;
    tape_backward(w->tape, w->y, NULL);
}

static int all(Dp *dp, Tape *tape, void (*job)(void *)) {
    int status = 0;
    for (int i = 0; i < dp->busy; i++) device_submit(dp->workers[i].device, job, &dp->workers[i]);
    for (int i = 0; i < dp->busy; i++)
        must_do(device_wait(dp->workers[i].device, 1800, &tape->error), &tape->error);
    for (int i = 0; i < dp->busy; i++)
        if (tape_error(dp->workers[i].tape, &tape->error) != 0) status = -1;
    return status;
}

static void set_weights(Dp *dp, Tape *tape) {
    size_t bytes = dp->at[dp->model.count];
    char *packed = tape_memory(tape, bytes);
    for (size_t k = 0; k < dp->model.count; k++) {
        const Tensor *tensor = dp->model.items[k].tensor;
        device_copy(tape->device, packed + dp->at[k], tape->device, tensor->data,
                    tensor_bytes(tensor));
    }
    for (int i = 0; i < dp->busy; i++) {
        Worker *w = &dp->workers[i];
        w->block = i > 0 ? tape_memory(w->tape, bytes) : NULL;
        if (i > 0) device_copy(w->device, w->block, tape->device, packed, bytes);
        for (size_t k = 0; k < dp->model.count; k++) {
            const Tensor *original = dp->model.items[k].tensor;
            Tensor *mine = w->tensors.items[k].tensor;
            mine->data = i > 0 ? (void *)(w->block + dp->at[k]) : original->data;
            mine->requires_grad = tape->recording && original->requires_grad;
            mine->has_grad = false;
            mine->grad = NULL;
        }
    }
}

static void reduce(Dp *dp, Tape *tape, size_t k) {
    Tensor *parameter = dp->model.items[k].tensor;
    size_t count = tensor_count(parameter);
    float *sum = NULL, *next = tape_memory(tape, count * sizeof *next);
    for (int i = 0; i < dp->busy; i++) {
        const Tensor *part = dp->workers[i].tensors.items[k].tensor;
        if (!part->has_grad) continue;
        device_copy(tape->device, next, dp->workers[i].device, part->grad, count * sizeof *next);
        if (sum) {
            device_kernels(tape->device)->elementwise->accumulate(sum, next, count);
        } else {
            sum = next;
            next = tape_memory(tape, count * sizeof *next);
        }
    }
    bool add;
    float *grad = sum ? tape_grad(tape, parameter, &add) : NULL;
    if (grad && add) device_kernels(tape->device)->elementwise->accumulate(grad, sum, count);
    if (grad && !add) device_copy(tape->device, grad, tape->device, sum, count * sizeof *sum);
    tape_grad_done(tape, parameter);
}

static void backward(Tape *tape, TapeNode *node) {
    Dp *dp = *(Dp **)node->saved;
    const float *dy = node->output->grad;
    for (int i = 0; i < dp->busy; i++) {
        Worker *w = &dp->workers[i];
        device_copy(w->device, tape_make_grad(w->tape, w->y), tape->device, dy, tensor_bytes(w->y));
        dy += tensor_count(w->y);
    }
    if (all(dp, tape, go_backward) != 0) return;
    for (size_t k = 0; k < dp->model.count; k++) reduce(dp, tape, k);
}

static Tensor *forward(void *self, Tape *tape, Tensor *x) {
    Dp *dp = self;
    size_t rows = x->shape[0], each = (rows + (size_t)dp->count - 1) / (size_t)dp->count;
    size_t row = tensor_bytes(x) / rows, shape[TENSOR_MAX_DIMS], outputs = 0;
    for (dp->busy = 0; (size_t)dp->busy * each < rows; dp->busy++) {
        Worker *w = &dp->workers[dp->busy];
        size_t begin = (size_t)dp->busy * each;
        w->tape = tape_fork(tape, w->device);
        memcpy(shape, x->shape, sizeof shape);
        shape[0] = begin + each < rows ? each : rows - begin;
        w->x = tape_tensor(w->tape, x->dtype, x->ndim, shape);
        device_copy(w->device, w->x->data, x->device, (char *)x->data + begin * row,
                    shape[0] * row);
    }
    set_weights(dp, tape);
    if (all(dp, tape, go_forward) != 0) return NULL;
    for (int i = 0; i < dp->busy; i++) outputs += dp->workers[i].y->shape[0];
    const Tensor *first = dp->workers[0].y;
    memcpy(shape, first->shape, sizeof shape);
    shape[0] = outputs;
    Tensor *y = tape_tensor(tape, first->dtype, first->ndim, shape);
    char *to = y->data;
    for (int i = 0; i < dp->busy; i++) {
        const Tensor *part = dp->workers[i].y;
        device_copy(tape->device, to, part->device, part->data, tensor_bytes(part));
        to += tensor_bytes(part);
    }
    Tensor **inputs = tape_alloc(tape, dp->model.count * sizeof *inputs);
    for (size_t k = 0; k < dp->model.count; k++) inputs[k] = dp->model.items[k].tensor;
    Dp **saved = tape_alloc(tape, sizeof *saved);
    *saved = dp;
    tape_record(tape, "own_dp", backward, y, dp->model.count, inputs, saved);
    return y;
}

const OwnDp own_dp = {OWN_DP_VERSION, make, forward, end};
