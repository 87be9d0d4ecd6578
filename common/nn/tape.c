/* tape.c: recording, the two passes of backward, and the memory of activations' gradients.
 *
 * An activation's gradient is needed from the first contribution until the operation that made the
 * activation has run backward. Its memory then serves the next one: a network of many layers needs
 * the memory of two or three gradients, which stay in the cache.
 */
#include "common/nn/tape.h"

#include <stdarg.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/object.h"
#include "common/base/profile.h"

typedef struct GradBuffer {
    float *memory;
    size_t bytes;
    bool in_use;
} GradBuffer;

Tape *tape_create(Device *device, Profile *profile) {
    Tape *tape = object_open("tape", sizeof *tape);
    tape->device = device;
    tape->arena = arena_create(device);
    tape->notes = arena_create(NULL);
    tape->profile = profile;
    tape->recording = true;
    tape->training = true;
    return tape;
}

void tape_close(Tape *tape) {
    if (!tape) return;
    object_check_open(tape, "tape_close");
    for (size_t i = 0; i < tape->fork_count; i++) tape_close(tape->forks[i]);
    arena_close(&tape->arena);
    arena_close(&tape->notes);
    device_free(tape->device, tape->scratch, tape->scratch_bytes);
    device_free(tape->device, tape->one, sizeof *tape->one);
    free(tape->forks);
    free(tape->buffers);
    free(tape->nodes);
    object_close(tape);
}

void tape_reset(Tape *tape) {
    for (size_t i = 0; i < tape->forks_in_use; i++) tape_reset(tape->forks[i]);
    tape->forks_in_use = 0;
    tape->count = 0;
    tape->buffer_count = 0;
    tape->error.status = STATUS_OK;
    arena_reset(&tape->arena);
    arena_reset(&tape->notes);
}

// Forks are reused in the same order every step; a fork on another device than requested (the graph
// changed) is replaced.
Tape *tape_fork(Tape *tape, Device *device) {
    if (tape->forks_in_use == tape->fork_count) {
        tape->forks = memory_grow(tape->forks, tape->fork_count + 1, sizeof *tape->forks);
        tape->forks[tape->fork_count++] = tape_create(device, NULL);
    }
    Tape **fork = &tape->forks[tape->forks_in_use++];
    if ((*fork)->device != device) {
        tape_close(*fork);
        *fork = tape_create(device, NULL);
    }
    (*fork)->forked = true;
    (*fork)->recording = tape->recording;
    (*fork)->training = tape->training;
    (*fork)->precision = tape->precision;
    return *fork;
}

void *tape_alloc(Tape *tape, size_t bytes) {
    return arena_alloc(&tape->notes, bytes);
}

void *tape_memory(Tape *tape, size_t bytes) {
    return arena_alloc(&tape->arena, bytes);
}

Tensor *tape_view(Tape *tape, DType dtype, int ndim, const size_t *shape, void *data) {
    Tensor *tensor = tape_alloc(tape, sizeof *tensor);
    *tensor = tensor_make(tape->device, dtype, ndim, shape, data);
    return tensor;
}

Tensor *tape_alias_as(Tape *tape, const Tensor *x, int ndim, const size_t *shape) {
    Tensor *same = tape_view(tape, x->dtype, ndim, shape, x->data);
    same->base = x->base;
    same->version = x->version;
    return same;
}

Tensor *tape_alias(Tape *tape, const Tensor *x) {
    Tensor *same = tape_alias_as(tape, x, x->ndim, x->shape);
    same->pitch = x->pitch;
    return same;
}

Tensor *tape_tensor(Tape *tape, DType dtype, int ndim, const size_t *shape) {
    Tensor *tensor = tape_view(tape, dtype, ndim, shape, NULL);
    tensor->data = tape_memory(tape, tensor_bytes(tensor));
    tensor->base = tensor;
    return tensor;
}

Tensor *tape_input(Tape *tape, DType dtype, int ndim, const size_t *shape, const void *host) {
    Tensor *tensor = tape_tensor(tape, dtype, ndim, shape);
    tensor->base = NULL;
    device_copy(tape->device, tensor->data, NULL, host, tensor_bytes(tensor));
    return tensor;
}

void *tape_scratch(Tape *tape, size_t bytes) {
    if (bytes > tape->scratch_bytes) {
        device_free(tape->device, tape->scratch, tape->scratch_bytes);
        tape->scratch = device_alloc(tape->device, bytes);
        tape->scratch_bytes = bytes;
    }
    return tape->scratch;
}

static bool wants_grad(const Tensor *input) {
    return input && input->requires_grad;
}

// A CPU device may be opened twice.
static bool same_device(const Device *a, const Device *b) {
    return a == b || (device_is_cpu(a) && strcmp(a->name, b->name) == 0);
}

bool tape_check_devices(Tape *tape, const char *op, Tensor *const *tensors, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const Tensor *x = tensors[i];
        if (!x || same_device(x->device, tape->device)) continue;
        tape_fail(tape, op,
                  "Expected all tensors to be on the same device, but found at least two devices, "
                  "%s and %s: of the operands, %s is on %s",
                  tape->device->name, x->device->name, tensor_describe(x).text, x->device->name);
        return false;
    }
    return true;
}

bool tape_check_own(Tape *tape, const char *op, Tensor *const *inputs, size_t count) {
    const bool needed = tape->recording && !tape->forked;
    for (size_t i = 0; needed && i < count; i++) {
        const Tensor *x = inputs[i];
        if (!wants_grad(x) || !x->base || arena_holds(&tape->notes, x)) continue;
        tape_fail(tape, op,
                  "input %zu, %s, is an activation of another tape, or of before tape_reset: "
                  "backward would not return to it. Record all of a step on one tape",
                  i, tensor_describe(x).text);
        return false;
    }
    return true;
}

TapeNode *tape_record(Tape *tape, const char *op, void (*backward)(Tape *, TapeNode *),
                      Tensor *output, size_t input_count, Tensor *const *inputs, void *saved) {
    if (!tape_check_devices(tape, op, inputs, input_count) ||
        !tape_check_own(tape, op, inputs, input_count))
        return NULL;
    return tape_record_across(tape, op, backward, output, input_count, inputs, saved);
}

TapeNode *tape_record_across(Tape *tape, const char *op, void (*backward)(Tape *, TapeNode *),
                             Tensor *output, size_t input_count, Tensor *const *inputs,
                             void *saved) {
    if (!tape_check_values(tape, op, inputs, input_count)) return NULL;
    bool wanted = false;
    for (size_t i = 0; i < input_count; i++) wanted = wanted || wants_grad(inputs[i]);
    if (!tape->recording || !wanted) return NULL;
    output->requires_grad = true;
    if (tape->count == tape->capacity) {
        tape->capacity = tape->capacity ? 2 * tape->capacity : 64;
        tape->nodes = memory_grow(tape->nodes, tape->capacity, sizeof *tape->nodes);
    }
    TapeNode *node = &tape->nodes[tape->count++];
    *node = (TapeNode){.op = op, .backward = backward, .output = output, .saved = saved};
    node->inputs = tape_alloc(tape, input_count * sizeof *inputs);
    if (input_count) memcpy(node->inputs, inputs, input_count * sizeof *inputs);
    node->input_count = input_count;
    node->reads = TAPE_READS_INPUTS | TAPE_READS_OUTPUT;
    return node;
}

// ---- operations in place ------------------------------------------------------------------------

void tape_backward_reads(TapeNode *node, int reads) {
    if (node) node->reads = reads;
}

static bool takes(const TapeNode *node, const Tensor *base) {
    for (size_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] && node->inputs[i]->base == base) return true;
    return false;
}

// Searches back to the node that has made the memory, most often the last node.
bool tape_may_overwrite(const Tape *tape, const Tensor *x) {
    for (size_t i = x->base ? tape->count : 0; i-- > 0;) {
        const TapeNode *node = &tape->nodes[i];
        const bool input = takes(node, x->base), output = node->output->base == x->base;
        if ((input && node->reads & TAPE_READS_INPUTS) ||
            (output && node->reads & TAPE_READS_OUTPUT))
            return false;
        if (output && !input) break;
    }
    return x->base != NULL;
}

void tape_overwrite(Tensor *x, Tensor *y, const char *op) {
    if (!x->base) return;
    x->base->overwritten = op;
    x->base->last_version++;
    if (y) y->version = x->base->last_version;
}

bool tape_check_values(Tape *tape, const char *op, Tensor *const *tensors, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const Tensor *x = tensors[i], *base = x ? x->base : NULL;
        if (!base || x->version == base->last_version) continue;
        tape_fail(tape, op,
                  "input %zu, %s, has been modified by an inplace operation, %s: give that one "
                  "op_clone(tape, x) instead of x",
                  i, tensor_describe(x).text, base->overwritten);
        return false;
    }
    return true;
}

Tensor *tape_fail(Tape *tape, const char *op, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return error_null(&tape->error, STATUS_FAILED, "%s on %s: %s", op, tape->device->name, text);
}

int tape_error(const Tape *tape, Error *err) {
    if (tape->error.status == STATUS_OK) return 0;
    return error_set(err, tape->error.status, "%s", tape->error.message);
}

// ---- gradients of activations -----------------------------------------------------------------

// Returns the smallest free buffer that is large enough, or a new one from the arena. A small
// gradient does not take a very large buffer, because a replica's parameters keep theirs and the
// next activation would need a new one.
static float *take_buffer(Tape *tape, size_t bytes) {
    GradBuffer *best = NULL;
    for (size_t i = 0; i < tape->buffer_count; i++) {
        GradBuffer *buffer = &tape->buffers[i];
        if (buffer->in_use || buffer->bytes < bytes || buffer->bytes / 8 > bytes) continue;
        if (!best || buffer->bytes < best->bytes) best = buffer;
    }
    if (!best) {
        if (tape->buffer_count == tape->buffer_capacity) {
            tape->buffer_capacity = tape->buffer_capacity ? 2 * tape->buffer_capacity : 16;
            tape->buffers = memory_grow(tape->buffers, tape->buffer_capacity, sizeof *best);
        }
        best = &tape->buffers[tape->buffer_count++];
        *best = (GradBuffer){.memory = tape_memory(tape, bytes), .bytes = bytes};
    }
    best->in_use = true;
    return best->memory;
}

static void give_back_grad(Tape *tape, Tensor *activation) {
    for (size_t i = 0; activation->grad && i < tape->buffer_count; i++)
        if (tape->buffers[i].memory == activation->grad) tape->buffers[i].in_use = false;
    activation->grad = NULL;
    activation->has_grad = false;
}

static size_t grad_bytes(const Tensor *tensor) {
    return tensor_is_half(tensor) ? tensor_bytes(tensor) : tensor_count(tensor) * sizeof(float);
}

float *tape_make_grad(Tape *tape, Tensor *output) {
    if (!output->grad) output->grad = take_buffer(tape, grad_bytes(output));
    output->has_grad = true;
    return output->grad;
}

float *tape_grad(Tape *tape, Tensor *input, bool *accumulate) {
    if (!wants_grad(input)) return NULL;
    *accumulate = input->has_grad;
    return tape_make_grad(tape, input);
}

void tape_grad_done(Tape *tape, Tensor *input) {
    if (!wants_grad(input)) return;
    CHECK(input->pending_uses > 0, "a gradient got more contributions than its tensor has uses");
    if (--input->pending_uses > 0 || !input->on_ready) return;
    if (input->on_ready(input->on_ready_context, input, &tape->error) != 0)
        error_set(&tape->error, STATUS_FAILED, "on_ready of a parameter %s failed without a reason",
                  tensor_describe(input).text);
}

bool tape_grad_take(Tape *tape, TapeNode *node, Tensor *input) {
    Tensor *output = node->output;
    if (!wants_grad(input) || input->grad || grad_bytes(input) != grad_bytes(output) ||
        output->grad == tape->one)
        return false;
    input->grad = output->grad;
    input->has_grad = true;
    output->grad = NULL;
    output->has_grad = false;
    return true;
}

void tape_grad_in_place(Tensor *input, void *memory) {
    CHECK(!input->has_grad, "the input's memory was used again after the operation replaced it");
    input->grad = memory;
    input->has_grad = true;
}

void tape_pass_gradient(Tape *tape, TapeNode *node, Tensor *input, bool may_take) {
    const Kernels *kernels = device_kernels(tape->device);
    bool accumulate;
    if (!(may_take && tape_grad_take(tape, node, input))) {
        const float *dy = node->output->grad;
        float *grad = tape_grad(tape, input, &accumulate);
        if (grad && !accumulate)
            device_copy(tape->device, grad, tape->device, dy, grad_bytes(input));
        else if (grad && tensor_is_half(input))
            kernels->halves->add(tensor_precision(input), (void *)grad, (void *)grad,
                                 (const void *)dy, tensor_bytes(input) / sizeof(uint16_t));
        else if (grad)
            kernels->elementwise->accumulate(grad, dy, tensor_count(input));
    }
    tape_grad_done(tape, input);
}

// ---- backward ---------------------------------------------------------------------------------

// The roots of a tuple are its tensors with a gradient.
static bool is_root(const Tensor *root, const Tensor *output) {
    if (root == output) return output->has_grad;
    for (int i = 0; root && i < root->item_count; i++)
        if (is_root(root->items[i], output)) return true;
    return false;
}

// Walks back from the root, marks the nodes that its gradient reaches, and counts the contributing
// uses of every tensor. Consumers are recorded after producers, so when a node is visited, all uses
// of its output have been counted.
static void count_uses(Tape *tape, const Tensor *root) {
    for (size_t i = 0; i < tape->count; i++)
        for (size_t j = 0; j < tape->nodes[i].input_count; j++)
            if (tape->nodes[i].inputs[j]) tape->nodes[i].inputs[j]->pending_uses = 0;
    for (size_t i = tape->count; i-- > 0;) {
        TapeNode *node = &tape->nodes[i];
        node->reached = is_root(root, node->output) || node->output->pending_uses > 0;
        for (size_t j = 0; node->reached && j < node->input_count; j++)
            if (wants_grad(node->inputs[j])) node->inputs[j]->pending_uses++;
    }
}

// Fills the gradient of a loss; the caller fills that of any other output.
static int check_output(Tape *tape, Tensor *output, Error *err) {
    if (tape_error(tape, err) != 0) return -1;
    CHECK(output, "there is no output, and nothing has failed");
    CHECK(arena_holds(&tape->notes, output) || output->has_grad,
          "tape_backward: the output is not of this tape: it was computed before tape_reset, or on "
          "another tape");
    if (output->has_grad || output->items) return 0;
    CHECK(tensor_count(output) == 1,
          "tape_backward: an output of %zu elements, and no gradient of it (tape_make_grad)",
          tensor_count(output));
    if (!output->requires_grad)
        return error_set(err, STATUS_FAILED, "the loss does not depend on any parameter");
    if (!tape->one) {
        tape->one = device_alloc(tape->device, sizeof *tape->one);
        device_kernels(tape->device)->elementwise->fill(tape->one, 1.0f, 1);
    }
    output->grad = tape->one;
    output->has_grad = true;
    return 0;
}

int tape_backward(Tape *tape, Tensor *output, Error *err) {
    if (check_output(tape, output, err) != 0) return -1;
    Phase phase = profile_enter(tape->profile, PHASE_BACKWARD);
    count_uses(tape, output);
    for (size_t i = tape->count; i-- > 0 && tape->error.status == STATUS_OK;) {
        TapeNode *node = &tape->nodes[i];
        if (!node->reached) continue;
        CHECK(node->output->has_grad, "%s: no gradient arrived at its output", node->op);
        node->backward(tape, node);
        give_back_grad(tape, node->output);
    }
    profile_leave(tape->profile, phase);
    return tape_error(tape, err);
}
