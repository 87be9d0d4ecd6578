/* dp_one_node.c: a DataParallel that records scatter, replicas, gather and reduce as one node on
 * the tape.
 */
#include <stdlib.h>
#include <string.h>

#include "dp/own/own_dp.h"

typedef struct Dp {
    Device *devices[64];
    int count;
    NamedTensors originals; // the model's parameters and buffers
    Module *replicas[64];
    NamedTensors copies[64];
} Dp;

typedef struct Share { // one device's part of a forward
    Module *replica;
    Tape *tape;
    Tensor *x, *y;
    void **memory; // [tensors] the memory of the replica's tensors
} Share;

typedef struct Step { // one forward
    Dp *dp;
    int used; // devices that have rows
    Share shares[64];
} Step;

static void *own_open(Module *model, Device *const *devices, int count, Error *err) {
    if (count > 64) return error_null(err, STATUS_USAGE, "own_dp: at most 64 devices");
    Dp *dp = calloc(1, sizeof *dp);
    dp->count = count;
    dp->originals = module_tensors(model, MODULE_STATE);
    for (int i = 0; i < count; i++) {
        dp->devices[i] = devices[i];
        dp->replicas[i] = module_replica(model, devices[i]);
        dp->copies[i] = module_tensors(dp->replicas[i], MODULE_STATE);
    }
    return dp;
}

static void own_close(void *self) {
    Dp *dp = self;
    for (int i = 0; i < dp->count; i++) {
        named_tensors_free(&dp->copies[i]);
        module_close(dp->replicas[i]);
    }
    named_tensors_free(&dp->originals);
    free(dp);
}

static void run_forward(void *argument) {
    Share *share = argument;
    share->y = module_forward(share->replica, share->tape, share->x);
}

static void run_backward(void *argument) {
    Share *share = argument;
    tape_backward(share->tape, share->y, NULL);
}

// Runs a function on the threads of all devices. Returns false after an error, which is then on the
// tape.
static bool run_all(Tape *tape, Step *step, void (*run)(void *share)) {
    for (int i = 0; i < step->used; i++) device_submit(step->dp->devices[i], run, &step->shares[i]);
    for (int i = 0; i < step->used; i++)
        if (device_wait(step->dp->devices[i], 600, &tape->error) != 0) error_exit(&tape->error);
    for (int i = 0; i < step->used; i++)
        if (tape_error(step->shares[i].tape, &tape->error) != 0) return false;
    return true;
}

// Points the tensors of replica i to the copies of this forward. Replica 0 uses the model's own
// memory.
static void install(Step *step, int i) {
    const Dp *dp = step->dp;
    for (size_t k = 0; k < dp->originals.count; k++) {
        const Tensor *original = dp->originals.items[k].tensor;
        Tensor *copy = dp->copies[i].items[k].tensor;
        copy->data = i == 0 ? original->data : step->shares[i].memory[k];
        copy->requires_grad = original->requires_grad && step->shares[i].tape->recording;
        copy->has_grad = false;
        copy->grad = NULL;
    }
}

static void replicate(Step *step, int i) {
    const Dp *dp = step->dp;
    Share *share = &step->shares[i];
    share->memory = tape_alloc(share->tape, dp->originals.count * sizeof *share->memory);
    for (size_t k = 0; k < dp->originals.count && i > 0; k++) {
        const Tensor *original = dp->originals.items[k].tensor;
        share->memory[k] = tape_memory(share->tape, tensor_bytes(original));
        device_copy(dp->devices[i], share->memory[k], original->device, original->data,
                    tensor_bytes(original));
    }
    install(step, i);
}

// ---- backward -----------------------------------------------------------------------------------

static void backward(Tape *tape, TapeNode *node) {
    Step *step = node->saved;
    const Dp *dp = step->dp;
    const char *dy = (const char *)node->output->grad;
    for (int i = 0; i < step->used; i++) {
        Share *share = &step->shares[i];
        size_t bytes = tensor_count(share->y) * sizeof(float);
        install(step, i);
        device_copy(dp->devices[i], tape_make_grad(share->tape, share->y), tape->device, dy, bytes);
        dy += bytes;
    }
    if (!run_all(tape, step, run_backward)) return;
    for (size_t k = 0; k < dp->originals.count; k++) {
        Tensor *parameter = dp->originals.items[k].tensor;
        size_t count = tensor_count(parameter), bytes = count * sizeof(float);
        float *sum = NULL;
        for (int i = 0; i < step->used; i++) {
            const Tensor *copy = dp->copies[i].items[k].tensor;
            if (!copy->has_grad) continue;
            float *values = tape_memory(tape, bytes);
            device_copy(tape->device, values, dp->devices[i], copy->grad, bytes);
            if (sum) device_kernels(tape->device)->elementwise->accumulate(sum, values, count);
            if (!sum) sum = values;
        }
        if (sum) {
            bool accumulate;
            float *grad = tape_grad(tape, parameter, &accumulate);
            if (accumulate)
                device_kernels(tape->device)->elementwise->accumulate(grad, sum, count);
            else
                device_copy(tape->device, grad, tape->device, sum, bytes);
        }
        tape_grad_done(tape, parameter);
    }
}

// ---- forward ------------------------------------------------------------------------------------

static void scatter(Tape *tape, Step *step, const Tensor *x) {
    Dp *dp = step->dp;
    size_t rows = x->shape[0], chunk = (rows + (size_t)dp->count - 1) / (size_t)dp->count;
    size_t row_bytes = tensor_bytes(x) / rows;
    for (size_t begin = 0; begin < rows; begin += chunk, step->used++) {
        Share *share = &step->shares[step->used];
        size_t shape[TENSOR_MAX_DIMS];
        memcpy(shape, x->shape, sizeof shape);
        shape[0] = rows - begin < chunk ? rows - begin : chunk;
        share->replica = dp->replicas[step->used];
        share->tape = tape_fork(tape, dp->devices[step->used]);
        share->x = tape_tensor(share->tape, x->dtype, x->ndim, shape);
        device_copy(share->tape->device, share->x->data, x->device,
                    (const char *)x->data + begin * row_bytes, shape[0] * row_bytes);
    }
}

static Tensor *gather(Tape *tape, const Step *step) {
    const Tensor *first = step->shares[0].y;
    size_t shape[TENSOR_MAX_DIMS];
    memcpy(shape, first->shape, sizeof shape);
    for (int i = 1; i < step->used; i++) shape[0] += step->shares[i].y->shape[0];
    Tensor *y = tape_tensor(tape, first->dtype, first->ndim, shape);
    char *to = y->data;
    for (int i = 0; i < step->used; i++) {
        const Tensor *part = step->shares[i].y;
        device_copy(tape->device, to, part->device, part->data, tensor_bytes(part));
        to += tensor_bytes(part);
    }
    return y;
}

static Tensor *own_forward(void *self, Tape *tape, Tensor *x) {
    Dp *dp = self;
    Step *step = tape_alloc(tape, sizeof *step);
    memset(step, 0, sizeof *step);
    step->dp = dp;
    scatter(tape, step, x);
    for (int i = 0; i < step->used; i++) replicate(step, i);
    if (!run_all(tape, step, run_forward)) return NULL;
    Tensor *y = gather(tape, step);
    Tensor **inputs = tape_alloc(tape, dp->originals.count * sizeof *inputs);
    for (size_t k = 0; k < dp->originals.count; k++) inputs[k] = dp->originals.items[k].tensor;
    tape_record(tape, "own_dp", backward, y, dp->originals.count, inputs, step);
    return y;
}

const OwnDp own_dp = {OWN_DP_VERSION, own_open, own_forward, own_close};
