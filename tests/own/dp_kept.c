/* dp_kept.c: a DataParallel whose replicas keep their memory from open to close, gradients
 * included, so that a step only copies.
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
    Error err;
} Worker;

typedef struct Dp {
    NamedTensors tensors; // the model's
    Worker *workers;      // [count]
    int count, active;    // active: devices with rows in this forward
    float *sum, *addend;  // [bytes] on the first device
    size_t bytes;
} Dp;

static void run_forward(void *argument) {
    Worker *worker = argument;
    worker->y = module_forward(worker->replica, worker->tape, worker->x);
    tape_error(worker->tape, &worker->err);
}

static void run_backward(void *argument) {
    Worker *worker = argument;
    tape_backward(worker->tape, worker->y, &worker->err);
}

static int run_all(Dp *dp, Tape *tape, void (*function)(void *)) {
    int status = 0;
    for (int d = 0; d < dp->active; d++) {
        dp->workers[d].err = (Error){0};
        device_submit(dp->workers[d].device, function, &dp->workers[d]);
    }
    for (int d = 0; d < dp->active; d++) {
        Worker *worker = &dp->workers[d];
        if (device_wait(worker->device, 3600, &worker->err) != 0) status = -1;
        if (worker->err.status == STATUS_OK) continue;
        tape_fail(tape, "own_dp", "%s", worker->err.message);
        status = -1;
    }
    return status;
}

// ---- forward ------------------------------------------------------------------------------------

static void replicate(const Dp *dp, int d) {
    for (size_t i = 0; i < dp->tensors.count; i++) {
        const Tensor *from = dp->tensors.items[i].tensor;
        Tensor *to = dp->workers[d].tensors.items[i].tensor;
        to->has_grad = false;
        if (d > 0) device_copy(to->device, to->data, from->device, from->data, tensor_bytes(from));
    }
}

static void scatter(Worker *worker, const Tensor *x, size_t begin, size_t rows) {
    const size_t row_bytes = tensor_bytes(x) / x->shape[0];
    size_t shape[TENSOR_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[0] = rows;
    worker->x = tape_tensor(worker->tape, x->dtype, x->ndim, shape);
    device_copy(worker->device, worker->x->data, x->device, (char *)x->data + begin * row_bytes,
                rows * row_bytes);
}

static Tensor *gather(const Dp *dp, Tape *tape) {
    const Tensor *first = dp->workers[0].y;
    size_t shape[TENSOR_MAX_DIMS];
    memcpy(shape, first->shape, sizeof shape);
    for (int d = 1; d < dp->active; d++) shape[0] += dp->workers[d].y->shape[0];
    Tensor *y = tape_tensor(tape, first->dtype, first->ndim, shape);
    char *to = y->data;
    for (int d = 0; d < dp->active; d++) {
        const Tensor *part = dp->workers[d].y;
        device_copy(y->device, to, part->device, part->data, tensor_bytes(part));
        to += tensor_bytes(part);
    }
    return y;
}

// ---- backward -----------------------------------------------------------------------------------

// Adds up the replicas' gradients of tensor i in dp->sum. Returns whether any replica has one.
static bool reduce(Dp *dp, size_t i) {
    Device *root = dp->workers[0].device;
    bool any = false;
    for (int d = 0; d < dp->active; d++) {
        const Tensor *part = dp->workers[d].tensors.items[i].tensor;
        if (!part->has_grad) continue;
        device_copy(root, any ? dp->addend : dp->sum, part->device, part->grad, tensor_bytes(part));
        if (any)
            device_kernels(root)->elementwise->accumulate(dp->sum, dp->addend, tensor_count(part));
        any = true;
    }
    return any;
}

static void backward(Tape *tape, TapeNode *node) {
    Dp *dp = node->saved;
    const char *from = (const char *)node->output->grad;
    for (int d = 0; d < dp->active; d++) {
        Worker *worker = &dp->workers[d];
        const size_t bytes = tensor_bytes(worker->y);
        device_copy(worker->device, tape_make_grad(worker->tape, worker->y), tape->device, from,
                    bytes);
        from += bytes;
    }
    if (run_all(dp, tape, run_backward) != 0) return;
    for (size_t i = 0; i < dp->tensors.count; i++) {
        Tensor *parameter = dp->tensors.items[i].tensor;
        bool accumulate;
        if (!parameter->requires_grad) continue;
        if (reduce(dp, i)) {
            float *grad = tape_grad(tape, parameter, &accumulate);
            if (accumulate)
                device_kernels(tape->device)
                    ->elementwise->accumulate(grad, dp->sum, tensor_count(parameter));
            else
                device_copy(tape->device, grad, tape->device, dp->sum, tensor_bytes(parameter));
        }
        tape_grad_done(tape, parameter);
    }
}

// ---- functions of OwnDp -------------------------------------------------------------------------

static Tensor *own_forward(void *self, Tape *tape, Tensor *x) {
    Dp *dp = self;
    const size_t rows = x->shape[0], chunk = (rows + (size_t)dp->count - 1) / (size_t)dp->count;
    Tensor **inputs = tape_alloc(tape, dp->tensors.count * sizeof *inputs);
    size_t input_count = 0;
    dp->active = 0;
    for (size_t begin = 0; begin < rows; begin += chunk) {
        Worker *worker = &dp->workers[dp->active];
        worker->tape = tape_fork(tape, worker->device);
        replicate(dp, dp->active++);
        scatter(worker, x, begin, rows - begin < chunk ? rows - begin : chunk);
    }
    if (run_all(dp, tape, run_forward) != 0) return NULL;
    Tensor *y = gather(dp, tape);
    for (size_t i = 0; i < dp->tensors.count; i++)
        if (dp->tensors.items[i].tensor->requires_grad)
            inputs[input_count++] = dp->tensors.items[i].tensor;
    tape_record(tape, "own_dp", backward, y, input_count, inputs, dp);
    return y;
}

static void keep_memory(const Dp *dp, int d) {
    for (size_t i = 0; i < dp->tensors.count; i++) {
        const Tensor *from = dp->tensors.items[i].tensor;
        Tensor *to = dp->workers[d].tensors.items[i].tensor;
        to->data = d > 0 ? device_alloc(to->device, tensor_bytes(to)) : from->data;
        if (from->requires_grad) to->grad = device_alloc(to->device, tensor_bytes(to));
    }
}

static void *own_open(Module *model, Device *const *devices, int count, Error *err) {
    Dp *dp = calloc(1, sizeof *dp);
    if (dp) dp->workers = calloc((size_t)count, sizeof *dp->workers);
    if (!dp || !dp->workers) return error_null(err, STATUS_FAILED, "no memory");
    dp->tensors = module_tensors(model, MODULE_STATE);
    dp->count = count;
    for (int d = 0; d < count; d++) {
        Worker *worker = &dp->workers[d];
        worker->device = devices[d];
        worker->replica = module_replica(model, devices[d]);
        worker->tensors = module_tensors(worker->replica, MODULE_STATE);
        keep_memory(dp, d);
    }
    for (size_t i = 0; i < dp->tensors.count; i++)
        if (tensor_bytes(dp->tensors.items[i].tensor) > dp->bytes)
            dp->bytes = tensor_bytes(dp->tensors.items[i].tensor);
    dp->sum = device_alloc(devices[0], dp->bytes);
    dp->addend = device_alloc(devices[0], dp->bytes);
    return dp;
}

static void own_close(void *self) {
    Dp *dp = self;
    device_free(dp->workers[0].device, dp->sum, dp->bytes);
    device_free(dp->workers[0].device, dp->addend, dp->bytes);
    for (int d = 0; d < dp->count; d++) {
        Worker *worker = &dp->workers[d];
        for (size_t i = 0; i < worker->tensors.count; i++) {
            Tensor *tensor = worker->tensors.items[i].tensor;
            if (d > 0) device_free(worker->device, tensor->data, tensor_bytes(tensor));
            device_free(worker->device, tensor->grad, tensor_bytes(tensor));
        }
        named_tensors_free(&worker->tensors);
        module_close(worker->replica);
    }
    named_tensors_free(&dp->tensors);
    free(dp->workers);
    free(dp);
}

const OwnDp own_dp = {OWN_DP_VERSION, own_open, own_forward, own_close};
