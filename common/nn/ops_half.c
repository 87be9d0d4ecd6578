/* ops_half.c: operations on tensors in 16 bits. An image's shape is [n, c, h, w]; its memory order,
 * and its gradient's, is [n, h, w, c]. 2-D tensors stay row-major.
 */
#include "common/nn/ops_half.h"

#define KERNELS(tape) device_kernels((tape)->device)->halves

bool tape_stores_halves(const Tape *tape) {
    return tape->precision != PRECISION_F32 && tape->device->kernels->halves;
}

static uint16_t *half_gradient(const Tensor *x) {
    return (void *)x->grad;
}

static uint16_t *want_gradient(Tape *tape, Tensor *x, bool *accumulate) {
    return (void *)tape_grad(tape, x, accumulate);
}

static ImageSizes sizes_of(const Tensor *x) {
    size_t n = x->ndim > 0 ? x->shape[0] : 1, c = x->ndim > 1 ? x->shape[1] : 1, inner = 1;
    for (int i = 2; i < x->ndim; i++) inner *= x->shape[i];
    return (ImageSizes){n, c, inner};
}

static Window *keep_window(Tape *tape, const Window *window) {
    Window *kept = tape_alloc(tape, sizeof *kept);
    *kept = *window;
    return kept;
}

static Tensor *output_of(Tape *tape, const Tensor *x, const Window *window) {
    return tape_tensor(tape, x->dtype, 4, (size_t[]){window->n, window->k, window->oh, window->ow});
}

// ---- to 16 bits, and back ---------------------------------------------------------------------

static void half_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0], *y = node->output;
    bool accumulate;
    float *dx = tape_grad(tape, x, &accumulate);
    if (dx)
        KERNELS(tape)->widen(tensor_precision(y), sizes_of(y), half_gradient(y), dx, accumulate);
    tape_grad_done(tape, x);
}

Tensor *op_half(Tape *tape, Tensor *x) {
    if (!x || tensor_is_half(x)) return x;
    Tensor *y = tape_tensor(tape, tape->precision == PRECISION_F16 ? DTYPE_F16 : DTYPE_BF16,
                            x->ndim, x->shape);
    KERNELS(tape)->narrow(tensor_precision(y), sizes_of(x), tensor_f32(x), tensor_half(y), false);
    tape_record(tape, "half", half_backward, y, 1, &x, NULL);
    return y;
}

static void float32_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0];
    bool accumulate;
    uint16_t *dx = want_gradient(tape, x, &accumulate);
    if (dx)
        KERNELS(tape)->narrow(tensor_precision(x), sizes_of(x), node->output->grad, dx, accumulate);
    tape_grad_done(tape, x);
}

Tensor *op_float32(Tape *tape, Tensor *x) {
    if (!x || !tensor_is_half(x)) return x;
    Tensor *y = tape_tensor(tape, DTYPE_F32, x->ndim, x->shape);
    KERNELS(tape)->widen(tensor_precision(x), sizes_of(x), tensor_half(x), tensor_f32(y), false);
    tape_record(tape, "float32", float32_backward, y, 1, &x, NULL);
    return y;
}

// ---- linear -----------------------------------------------------------------------------------

static Compute linear_room(Tape *tape, const Tensor *x, LinearShape of) {
    size_t bytes = KERNELS(tape)->linear_workspace(tensor_precision(x), of);
    return (Compute){tensor_precision(x), tape_scratch(tape, bytes)};
}

Tensor *half_linear(Tape *tape, Tensor *x, const Tensor *weight, const Tensor *bias, LinearShape of,
                    void **saved) {
    uint16_t *narrow = *saved = tape_memory(tape, linear_narrow_count(of) * sizeof *narrow);
    const float *addend = bias ? tensor_f32(bias) : NULL;
    Compute how = linear_room(tape, x, of);
    KERNELS(tape)->narrow_linear(how.precision, of, tensor_f32(weight), addend, narrow);
    Tensor *y = tape_tensor(tape, x->dtype, 2, (size_t[]){of.rows, of.out});
    KERNELS(tape)->linear(how, of, tensor_half(x), narrow, addend, tensor_half(y));
    return y;
}

static LinearShape linear_of(const Node *node) {
    const Tensor *x = node->inputs[0], *weight = node->inputs[1];
    return (LinearShape){x->shape[0], weight->shape[0], weight->shape[1], NULL};
}

void half_linear_weight_gradient(Tape *tape, const Node *node, const LinearGradient *to) {
    const Tensor *x = node->inputs[0];
    KERNELS(tape)->linear_weight_gradient(linear_room(tape, x, linear_of(node)), linear_of(node),
                                          half_gradient(node->output), tensor_half(x), to);
}

void half_linear_input_gradient(Tape *tape, const Node *node, const ReluMask *relu, void *dx,
                                bool accumulate) {
    const Tensor *x = node->inputs[0];
    KERNELS(tape)->linear_input_gradient(linear_room(tape, x, linear_of(node)), linear_of(node),
                                         half_gradient(node->output), node->saved, relu, dx,
                                         accumulate);
}

// ---- attention --------------------------------------------------------------------------------

void half_attention(Tape *tape, Compute how, const Attention *of, const Tensor *qkv, Tensor *y,
                    void *saved) {
    KERNELS(tape)->attention(how, of, tensor_half(qkv), tensor_half(y), saved);
}

void half_attention_gradient(Tape *tape, Compute how, const Attention *of, const Node *node,
                             const void *saved, void *dqkv, bool accumulate) {
    const Tensor *qkv = node->inputs[0], *y = node->output;
    KERNELS(tape)->attention_gradient(how, of, tensor_half(qkv), tensor_half(y), saved,
                                      half_gradient(y), dqkv, accumulate);
}

// ---- convolution ------------------------------------------------------------------------------

typedef struct ConvSaved {
    Window window;
    uint16_t *weight; // [k, kernel, kernel, c], device memory: made once per step
} ConvSaved;

static Compute conv_room(Tape *tape, Precision precision, const Window *window) {
    size_t bytes = KERNELS(tape)->conv2d_workspace(precision, window);
    return (Compute){precision, tape_scratch(tape, bytes)};
}

static void conv2d_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    const ConvSaved *saved = node->saved;
    const uint16_t *dy = half_gradient(node->output);
    Compute how = conv_room(tape, tensor_precision(x), &saved->window);
    bool accumulate;
    float *grad;
    if ((grad = tape_grad(tape, bias, &accumulate)))
        KERNELS(tape)->conv2d_bias_gradient(how.precision, &saved->window, dy, grad, accumulate);
    tape_grad_done(tape, bias);
    if ((grad = tape_grad(tape, weight, &accumulate)))
        KERNELS(tape)->conv2d_weight_gradient(how, &saved->window, tensor_half(x), dy, grad,
                                              accumulate);
    tape_grad_done(tape, weight);
    uint16_t *dx = want_gradient(tape, x, &accumulate);
    if (dx)
        KERNELS(tape)->conv2d_input_gradient(how, &saved->window, saved->weight, dy, dx,
                                             accumulate);
    tape_grad_done(tape, x);
}

Tensor *half_conv2d(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, const Window *window) {
    ConvSaved *saved = tape_alloc(tape, sizeof *saved);
    *saved = (ConvSaved){*window, tape_memory(tape, tensor_count(weight) * sizeof *saved->weight)};
    Compute how = conv_room(tape, tensor_precision(x), window);
    KERNELS(tape)->narrow(how.precision, sizes_of(weight), tensor_f32(weight), saved->weight,
                          false);
    Tensor *y = output_of(tape, x, window);
    KERNELS(tape)->conv2d(how, window, tensor_half(x), saved->weight,
                          bias ? tensor_f32(bias) : NULL, tensor_half(y));
    tape_record(tape, "conv2d", conv2d_backward, y, 3, (Tensor *[]){x, weight, bias}, saved);
    return y;
}

// ---- batch norm -------------------------------------------------------------------------------

static void batch_norm_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    HalfNorm *norm = node->saved;
    Tensor *y = node->output, *residual = node->inputs[3];
    uint16_t *dy = half_gradient(y);
    if (residual) { // its gradient is dy masked by the relu
        half_activation_gradient(tape, ACTIVATION_RELU, y, dy, dy, false);
        norm->of.relu = false;
    }
    norm->y = tensor_half(y);
    NormGradient to = {0};
    uint16_t *dx = want_gradient(tape, x, &to.add_dx);
    to.dweight = tape_grad(tape, weight, &to.add_dweight);
    to.dbias = tape_grad(tape, bias, &to.add_dbias);
    KERNELS(tape)->batch_norm_gradient(tensor_precision(x), norm, dy, dx, &to);
    tape_grad_done(tape, bias);
    tape_grad_done(tape, weight);
    tape_grad_done(tape, x);
    if (residual) tape_pass_gradient(tape, node, residual, true);
}

Tensor *half_batch_norm(Tape *tape, Tensor *x, const BatchNormState *state, bool relu,
                        Tensor *residual) {
    HalfNorm *norm = tape_alloc(tape, sizeof *norm);
    *norm = (HalfNorm){.of = batch_norm_of(x, state),
                       .x = tensor_half(x),
                       .residual = residual ? tensor_half(residual) : NULL};
    norm->of.relu = relu;
    norm->of.num_batches_tracked = state->num_batches_tracked->data;
    Tensor *y = tape_tensor(tape, x->dtype, x->ndim, x->shape);
    if (!tape->training) {
        KERNELS(tape)->batch_norm_eval(tensor_precision(x), norm, tensor_half(y));
        return y;
    }
    norm->of.mean = tape_memory(tape, norm->of.c * sizeof(float));
    norm->of.invstd = tape_memory(tape, norm->of.c * sizeof(float));
    KERNELS(tape)->batch_norm(tensor_precision(x), norm, tensor_half(y));
    tape_record(tape, "batch_norm", batch_norm_backward, y, 4,
                (Tensor *[]){x, state->weight, state->bias, residual}, norm);
    return y;
}

// ---- activations, sums ------------------------------------------------------------------------

void half_activation(Tape *tape, Activation f, const Tensor *y, const Tensor *x) {
    KERNELS(tape)->activation((HalfActivation){tensor_precision(x), f}, tensor_half(y),
                              tensor_half(x), tensor_count(x));
}

void half_activation_gradient(Tape *tape, Activation f, const Tensor *x, void *dx, const void *dy,
                              bool accumulate) {
    KERNELS(tape)->activation_gradient((HalfActivation){tensor_precision(x), f}, dx, tensor_half(x),
                                       dy, tensor_count(x), accumulate);
}

static void add_backward(Tape *tape, Node *node) {
    tape_pass_gradient(tape, node, node->inputs[0], false);
    tape_pass_gradient(tape, node, node->inputs[1], true);
}

Tensor *half_add(Tape *tape, Tensor *a, Tensor *b) {
    Tensor *y = tape_tensor(tape, a->dtype, a->ndim, a->shape);
    KERNELS(tape)->add(tensor_precision(a), tensor_half(y), tensor_half(a), tensor_half(b),
                       tensor_count(a));
    tape_record(tape, "add", add_backward, y, 2, (Tensor *[]){a, b}, NULL);
    return y;
}

// The narrow input's gradient is the output's, rounded; the wide input's is the output's itself.
static void add_to_backward(Tape *tape, Node *node) {
    Tensor *wide = node->inputs[0], *narrow = node->inputs[1];
    bool accumulate;
    uint16_t *grad = want_gradient(tape, narrow, &accumulate);
    if (grad)
        KERNELS(tape)->narrow(tensor_precision(narrow), sizes_of(narrow), node->output->grad, grad,
                              accumulate);
    tape_grad_done(tape, narrow);
    tape_pass_gradient(tape, node, wide, true);
}

Tensor *half_add_to(Tape *tape, Tensor *wide, Tensor *narrow) {
    Tensor *y = tape_tensor(tape, DTYPE_F32, wide->ndim, wide->shape);
    KERNELS(tape)->add_to(tensor_precision(narrow), tensor_f32(y), tensor_f32(wide),
                          tensor_half(narrow), tensor_count(y));
    tape_record(tape, "add", add_to_backward, y, 2, (Tensor *[]){wide, narrow}, NULL);
    return y;
}

// ---- windows ----------------------------------------------------------------------------------

typedef struct MaxPoolSaved {
    Window window;
    int32_t *chosen; // [n, oh, ow, c], device memory
} MaxPoolSaved;

static void max_pool_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0];
    const MaxPoolSaved *saved = node->saved;
    bool accumulate;
    uint16_t *dx = want_gradient(tape, x, &accumulate);
    if (dx)
        KERNELS(tape)->max_pool_gradient(tensor_precision(x), &saved->window, saved->chosen,
                                         half_gradient(node->output), dx, accumulate);
    tape_grad_done(tape, x);
}

Tensor *half_max_pool(Tape *tape, Tensor *x, const Window *window) {
    MaxPoolSaved *saved = tape_alloc(tape, sizeof *saved);
    Tensor *y = output_of(tape, x, window);
    *saved = (MaxPoolSaved){*window, tape_memory(tape, tensor_count(y) * sizeof(int32_t))};
    KERNELS(tape)->max_pool(tensor_precision(x), window, tensor_half(x), tensor_half(y),
                            saved->chosen);
    tape_record(tape, "max_pool", max_pool_backward, y, 1, &x, saved);
    return y;
}

typedef void WindowGradient(Precision precision, const Window *window, const uint16_t *dy,
                            uint16_t *dx, bool accumulate);

static void window_backward(Tape *tape, Node *node, WindowGradient *gradient) {
    Tensor *x = node->inputs[0];
    bool accumulate;
    uint16_t *dx = want_gradient(tape, x, &accumulate);
    if (dx) gradient(tensor_precision(x), node->saved, half_gradient(node->output), dx, accumulate);
    tape_grad_done(tape, x);
}

static void avg_pool_backward(Tape *tape, Node *node) {
    window_backward(tape, node, KERNELS(tape)->avg_pool_gradient);
}

Tensor *half_avg_pool(Tape *tape, Tensor *x, const Window *window) {
    Tensor *y = output_of(tape, x, window);
    KERNELS(tape)->avg_pool(tensor_precision(x), window, tensor_half(x), tensor_half(y));
    tape_record(tape, "avg_pool", avg_pool_backward, y, 1, &x, keep_window(tape, window));
    return y;
}

static void shortcut_backward(Tape *tape, Node *node) {
    window_backward(tape, node, KERNELS(tape)->shortcut_gradient);
}

Tensor *half_shortcut(Tape *tape, Tensor *x, const Window *window) {
    Tensor *y = output_of(tape, x, window);
    KERNELS(tape)->shortcut(tensor_precision(x), window, tensor_half(x), tensor_half(y));
    tape_record(tape, "shortcut", shortcut_backward, y, 1, &x, keep_window(tape, window));
    return y;
}

static void upsample2x_backward(Tape *tape, Node *node) {
    window_backward(tape, node, KERNELS(tape)->upsample2x_gradient);
}

Tensor *half_upsample2x(Tape *tape, Tensor *x, const Window *window) {
    Tensor *y = tape_tensor(tape, x->dtype, 4,
                            (size_t[]){window->n, window->c, 2 * window->h, 2 * window->w});
    KERNELS(tape)->upsample2x(tensor_precision(x), window, tensor_half(x), tensor_half(y));
    tape_record(tape, "upsample2x", upsample2x_backward, y, 1, &x, keep_window(tape, window));
    return y;
}
