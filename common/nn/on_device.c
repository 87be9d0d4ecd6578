/* on_device.c: copies to the part's device and back, in forward and in backward. */
#include "common/nn/on_device.h"

#include "common/base/memory.h"
#include "common/nn/ops.h"

typedef struct Held { // fields of a parameter that the part's own backward must not change
    int (*on_ready)(void *context, Tensor *tensor, Error *err);
    int pending_uses;
} Held;

typedef struct Crossing { // saved by a node
    Tape *tape;           // on the part's device
    Tensor *x, *y;        // the part's input and output, on its device
} Crossing;

// Returns a copy of x on the tape's device.
static Tensor *copy_to(Tape *tape, const Tensor *x) {
    Tensor *copy = tape_tensor(tape, x->dtype, x->ndim, x->shape);
    device_copy(tape->device, copy->data, x->device, x->data, tensor_bytes(x));
    return copy;
}

// The part's tape counts its own uses of a parameter, and would mark it as ready while a use
// outside of the part is pending. On the caller's tape the part is one use of each parameter.
static void run_part_backward(Tape *tape, TapeNode *node) {
    Crossing *crossing = node->saved;
    Tensor **parameters = node->inputs + 1, *y = crossing->y;
    size_t count = node->input_count - 1;
    Held *held = tape_alloc(tape, count * sizeof *held);
    for (size_t i = 0; i < count; i++) {
        held[i] = (Held){parameters[i]->on_ready, parameters[i]->pending_uses};
        parameters[i]->on_ready = NULL;
    }
    float *dy = tape_make_grad(crossing->tape, y);
    device_copy(y->device, dy, tape->device, node->output->grad, tensor_bytes(y));
    tape_backward(crossing->tape, y, &tape->error);
    for (size_t i = 0; i < count; i++) {
        parameters[i]->on_ready = held[i].on_ready;
        parameters[i]->pending_uses = held[i].pending_uses;
    }
}

static void bring_gradient_back(Tape *tape, const Tensor *there, Tensor *x) {
    bool accumulate;
    size_t count = tensor_count(there);
    float *dx = tape_grad(tape, x, &accumulate);
    if (!dx) return;
    float *received = accumulate ? tape_scratch(tape, tensor_bytes(there)) : dx;
    if (there->has_grad)
        device_copy(tape->device, received, there->device, there->grad, tensor_bytes(there));
    else
        device_kernels(tape->device)->elementwise->fill(received, 0.0f, count);
    if (accumulate) device_kernels(tape->device)->elementwise->accumulate(dx, received, count);
}

static void on_device_backward(Tape *tape, TapeNode *node) {
    const Crossing *crossing = node->saved;
    run_part_backward(tape, node);
    if (tape->error.status != STATUS_OK) return;
    bring_gradient_back(tape, crossing->x, node->inputs[0]);
    for (size_t i = 0; i < node->input_count; i++) tape_grad_done(tape, node->inputs[i]);
}

static bool is_used(const Tape *tape, const Tensor *parameter) {
    for (size_t i = 0; i < tape->count; i++)
        for (size_t j = 0; j < tape->nodes[i].input_count; j++)
            if (tape->nodes[i].inputs[j] == parameter) return true;
    return false;
}

static Tensor *on_device_forward(Module *self, Tape *tape, Tensor *x) {
    if (!x) return NULL;
    const NamedTensors *parameters = self->state;
    x = op_float32(tape, x);
    Tape *there = tape_fork(tape, parameters->items[0].tensor->device);
    Crossing *saved = tape_alloc(tape, sizeof *saved);
    *saved = (Crossing){.tape = there, .x = copy_to(there, x)};
    saved->x->requires_grad = x->requires_grad;
    saved->y = op_float32(there, module_forward(self->children[0], there, saved->x));
    if (tape_error(there, &tape->error) != 0) return NULL;
    Tensor *y = copy_to(tape, saved->y);
    Tensor **inputs = tape_alloc(tape, (1 + parameters->count) * sizeof *inputs);
    size_t count = 0;
    inputs[count++] = x;
    for (size_t i = 0; i < parameters->count; i++)
        if (is_used(there, parameters->items[i].tensor))
            inputs[count++] = parameters->items[i].tensor;
    tape_record_across(tape, "on_device", on_device_backward, y, count, inputs, saved);
    return y;
}

static void on_device_destroy(Module *self) {
    named_tensors_free(self->state);
    free(self->state);
}

Module *layer_on_device(Module *part) {
    NamedTensors *parameters = memory_zalloc(sizeof *parameters);
    *parameters = module_tensors(part, MODULE_PARAMETERS);
    CHECK(parameters->count > 0, "a %s without parameters is on every device", part->type);
    Module *module = module_create("OnDevice", on_device_forward);
    module->state = parameters;
    module->destroy = on_device_destroy;
    module_add(module, "", part);
    return module;
}
