/* ops_conv.c: the operations on images [n, c, h, w]: convolution, batch norm, pooling, upsampling,
 * shortcut. */
#include "common/nn/ops_half.h"

#define KERNELS(tape) device_kernels((tape)->device)

// Fills a window for x and checks that it fits. Returns false after recording an error: tape_fail's
// NULL converts to false.
static bool make_window(Tape *tape, const char *op, const Tensor *x, size_t k, size_t kernel,
                        size_t stride, size_t pad, Window *window) {
    if (x->ndim != 4)
        return tape_fail(tape, op, "expected an image [n, c, h, w], got %s",
                         tensor_describe(x).text);
    if (stride == 0) return tape_fail(tape, op, "the stride is 0");
    const size_t h = x->shape[2], w = x->shape[3];
    if (h + 2 * pad < kernel || w + 2 * pad < kernel)
        return tape_fail(tape, op, "a window of %zu with padding %zu is larger than the input %s",
                         kernel, pad, tensor_describe(x).text);
    *window = (Window){.n = x->shape[0],
                       .c = x->shape[1],
                       .h = h,
                       .w = w,
                       .k = k,
                       .kernel = kernel,
                       .stride = stride,
                       .pad = pad,
                       .oh = (h + 2 * pad - kernel) / stride + 1,
                       .ow = (w + 2 * pad - kernel) / stride + 1};
    return true;
}

static Tensor *window_output(Tape *tape, const Tensor *x, const Window *window) {
    return tape_tensor(tape, x->dtype, 4, (size_t[]){window->n, window->k, window->oh, window->ow});
}

// ---- convolution ------------------------------------------------------------------------------

typedef struct ConvSaved {
    Window window;
    uint16_t *weight; // in 16 bits, if x is: [k, kernel, kernel, c], device memory
} ConvSaved;

static Compute conv_room(Tape *tape, const Tensor *x, const Window *window) {
    const bool half = tensor_is_half(x);
    Precision precision = half ? tensor_precision(x) : tape->precision;
    size_t bytes = half ? HALVES(tape)->conv2d_workspace(precision, window)
                        : KERNELS(tape)->convolution->conv2d_workspace(precision, window);
    return (Compute){precision, tape_scratch(tape, bytes)};
}

static void conv2d_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    const ConvSaved *saved = node->saved;
    const Window *window = &saved->window;
    const float *dy = node->output->grad;
    const uint16_t *half_dy = half_gradient(node->output);
    const ConvolutionKernels *kernels = KERNELS(tape)->convolution;
    const HalfKernels *halves = tensor_is_half(x) ? HALVES(tape) : NULL;
    const Compute how = conv_room(tape, x, window);
    bool accumulate;
    float *grad = tape_grad(tape, bias, &accumulate);
    if (grad && halves)
        halves->conv2d_bias_gradient(how.precision, window, half_dy, grad, accumulate);
    else if (grad)
        kernels->conv2d_bias_gradient(window, dy, grad, accumulate);
    tape_grad_done(tape, bias);
    grad = tape_grad(tape, weight, &accumulate);
    if (grad && halves)
        halves->conv2d_weight_gradient(how, window, tensor_half(x), half_dy, grad, accumulate);
    else if (grad)
        kernels->conv2d_weight_gradient(how, window, tensor_f32(x), dy, grad, accumulate);
    tape_grad_done(tape, weight);
    grad = tape_grad(tape, x, &accumulate);
    if (grad && halves)
        halves->conv2d_input_gradient(how, window, saved->weight, half_dy, (void *)grad,
                                      accumulate);
    else if (grad)
        kernels->conv2d_input_gradient(how, window, tensor_f32(weight), dy, grad, accumulate);
    tape_grad_done(tape, x);
}

Tensor *op_conv2d(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, size_t stride, size_t pad) {
    if (!x) return NULL;
    if (weight->ndim != 4 || weight->shape[2] != weight->shape[3] ||
        (bias && tensor_count(bias) != weight->shape[0]))
        return tape_fail(tape, "conv2d", "a weight of %s with a bias of %s: not [k, c, r, r], [k]",
                         tensor_describe(weight).text, tensor_describe(bias).text);
    ConvSaved *saved = tape_alloc(tape, sizeof *saved);
    Window *window = &saved->window;
    if (!make_window(tape, "conv2d", x, weight->shape[0], weight->shape[2], stride, pad, window))
        return NULL;
    if (window->c != weight->shape[1])
        return tape_fail(tape, "conv2d", "the input has %zu channels, the weight wants %zu",
                         window->c, weight->shape[1]);
    if (tape_stores_halves(tape)) x = op_half(tape, x);
    const float *addend = bias ? tensor_f32(bias) : NULL;
    const Compute how = conv_room(tape, x, window);
    if (tensor_is_half(x)) {
        saved->weight = tape_memory(tape, tensor_count(weight) * sizeof *saved->weight);
        HALVES(tape)->narrow(how.precision, half_sizes(weight), tensor_f32(weight), saved->weight,
                             false);
    }
    Tensor *y = window_output(tape, x, window);
    if (tensor_is_half(x))
        HALVES(tape)->conv2d(how, window, tensor_half(x), saved->weight, addend, tensor_half(y));
    else
        KERNELS(tape)->convolution->conv2d(how, window, tensor_f32(x), tensor_f32(weight), addend,
                                           tensor_f32(y));
    Tensor *const inputs[] = {x, weight, bias};
    tape_backward_reads(tape_record(tape, "conv2d", conv2d_backward, y, 3, inputs, saved),
                        TAPE_READS_INPUTS);
    return y;
}

// ---- batch norm -------------------------------------------------------------------------------

typedef struct BatchNormSaved {
    HalfNorm norm; // x, residual and y: of tensors in 16 bits; of norm.of: of float32
    bool training;
} BatchNormSaved;

static void batch_norm_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    Tensor *y = node->output, *residual = node->inputs[3];
    const BatchNormSaved *saved = node->saved;
    HalfNorm norm = saved->norm;
    norm.of.weight = tensor_f32(weight); // a sharded weight is elsewhere now
    norm.of.bias = tensor_f32(bias);
    // The residual's gradient is dy masked by the relu, so it is computed first. Without a residual
    // the kernel of training masks dy itself.
    if (norm.of.relu && (residual || !saved->training)) {
        activation_gradient(tape, ACTIVATION_RELU, y, y->grad, y->grad, false);
        norm.of.relu = false;
    }
    NormGradient to = {0};
    to.dx = tape_grad(tape, x, &to.add_dx);
    to.dweight = tape_grad(tape, weight, &to.add_dweight);
    to.dbias = tape_grad(tape, bias, &to.add_dbias);
    if (tensor_is_half(x))
        HALVES(tape)->batch_norm_gradient(tensor_precision(x), &norm, half_gradient(y),
                                          (void *)to.dx, &to);
    else if (saved->training)
        KERNELS(tape)->norm->batch_norm_gradient(&norm.of, y->grad, &to);
    else
        KERNELS(tape)->norm->batch_norm_eval_gradient(&norm.of, y->grad, &to);
    tape_grad_done(tape, bias);
    tape_grad_done(tape, weight);
    tape_grad_done(tape, x);
    if (residual) tape_pass_gradient(tape, node, residual, true);
}

void batch_norm_count_batch(const BatchNormState *state) {
    Tensor *counter = state->num_batches_tracked; // on the device, as every buffer is
    device_kernels(counter->device)->elementwise->count_up(counter->data);
}

bool batch_norm_check_input(Tape *tape, const char *op, const Tensor *x,
                            const BatchNormState *state) {
    size_t c = tensor_count(state->weight);
    if (tensor_count(state->bias) != c || tensor_count(state->running_mean) != c ||
        tensor_count(state->running_var) != c)
        return tape_fail(tape, op, "the layer's tensors of %zu channels differ in size", c);
    if ((x->ndim == 2 || x->ndim == 4) && x->shape[1] == c) return true;
    return tape_fail(tape, op, "expected [n, %zu] or [n, %zu, h, w], got %s", c, c,
                     tensor_describe(x).text);
}

BatchNorm batch_norm_of(const Tensor *x, const BatchNormState *state) {
    return (BatchNorm){.x = tensor_is_half(x) ? NULL : tensor_f32(x),
                       .n = x->shape[0],
                       .c = x->shape[1],
                       .inner = x->ndim == 4 ? x->shape[2] * x->shape[3] : 1,
                       .weight = tensor_f32(state->weight),
                       .bias = tensor_f32(state->bias),
                       .running_mean = tensor_f32(state->running_mean),
                       .running_var = tensor_f32(state->running_var),
                       .momentum = state->momentum,
                       .eps = state->eps};
}

// Runs the kernel of training or evaluation for the type of x.
static Tensor *normalize(Tape *tape, const Tensor *x, BatchNormSaved *saved) {
    Tensor *y = tape_tensor(tape, x->dtype, x->ndim, x->shape);
    HalfNorm *norm = &saved->norm;
    if (saved->training) {
        norm->of.mean = tape_memory(tape, norm->of.c * sizeof(float));
        norm->of.invstd = tape_memory(tape, norm->of.c * sizeof(float));
    }
    if (tensor_is_half(x)) {
        const HalfKernels *halves = HALVES(tape);
        (saved->training ? halves->batch_norm : halves->batch_norm_eval)(tensor_precision(x), norm,
                                                                         tensor_half(y));
        norm->y = tensor_half(y);
    } else {
        const NormKernels *kernels = KERNELS(tape)->norm;
        (saved->training ? kernels->batch_norm : kernels->batch_norm_eval)(&norm->of,
                                                                           tensor_f32(y));
        norm->of.y = tensor_f32(y);
    }
    return y;
}

// relu: residual, which may be NULL, is added before.
static Tensor *batch_norm(Tape *tape, Tensor *x, const BatchNormState *state, bool relu,
                          Tensor *residual) {
    if (!x || !batch_norm_check_input(tape, "batch_norm", x, state)) return NULL;
    if (tape->training && tensor_count(x) == x->shape[1])
        return tape_fail(tape, "batch_norm",
                         "Expected more than 1 value per channel when training, got input size %s",
                         tensor_describe(x).text);
    if (residual && !tensor_same_shape(x, residual))
        return tape_fail(tape, "batch_norm", "a residual %s does not fit %s",
                         tensor_describe(residual).text, tensor_describe(x).text);
    if (residual && tensor_is_half(x) != tensor_is_half(residual)) // then their sum is float32
        return op_relu(tape, op_add(tape, op_batch_norm(tape, x, state), residual));
    if (tape->recording && !tape->training) { // this gradient has no 16-bit kernel
        x = op_float32(tape, x);
        residual = op_float32(tape, residual);
    }
    BatchNormSaved *saved = tape_alloc(tape, sizeof *saved);
    *saved = (BatchNormSaved){.norm.of = batch_norm_of(x, state), .training = tape->training};
    saved->norm.of.num_batches_tracked = state->num_batches_tracked->data;
    saved->norm.of.relu = relu;
    if (tensor_is_half(x)) saved->norm.x = tensor_half(x);
    if (residual && tensor_is_half(x)) saved->norm.residual = tensor_half(residual);
    if (residual && !tensor_is_half(x)) saved->norm.of.residual = tensor_f32(residual);
    Tensor *y = normalize(tape, x, saved);
    TapeNode *node =
        tape_record(tape, relu ? "batch_norm_relu" : "batch_norm", batch_norm_backward, y, 4,
                    (Tensor *[]){x, state->weight, state->bias, residual}, saved);
    tape_backward_reads(node, TAPE_READS_INPUTS | (relu ? TAPE_READS_OUTPUT : 0));
    return y;
}

Tensor *op_batch_norm(Tape *tape, Tensor *x, const BatchNormState *state) {
    return batch_norm(tape, x, state, false, NULL);
}

Tensor *op_batch_norm_relu(Tape *tape, Tensor *x, const BatchNormState *state, Tensor *residual) {
    return batch_norm(tape, x, state, true, residual);
}

// ---- pooling ----------------------------------------------------------------------------------

typedef struct MaxPoolSaved {
    Window window;
    int32_t *chosen; // [n, c, oh, ow], in 16 bits [n, oh, ow, c]; device memory
} MaxPoolSaved;

static void max_pool_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *y = node->output;
    const MaxPoolSaved *saved = node->saved;
    bool accumulate;
    float *dx = tape_grad(tape, x, &accumulate);
    if (tensor_is_half(x))
        HALVES(tape)->max_pool_gradient(tensor_precision(x), &saved->window, saved->chosen,
                                        half_gradient(y), (void *)dx, accumulate);
    else
        KERNELS(tape)->convolution->max_pool_gradient(&saved->window, saved->chosen, y->grad, dx,
                                                      accumulate);
    tape_grad_done(tape, x);
}

Tensor *op_max_pool(Tape *tape, Tensor *x, size_t kernel, size_t stride, size_t pad) {
    if (!x) return NULL;
    MaxPoolSaved *saved = tape_alloc(tape, sizeof *saved);
    if (x->ndim == 4 && 2 * pad > kernel)
        return tape_fail(tape, "max_pool", "padding %zu is more than half the kernel %zu", pad,
                         kernel);
    if (!make_window(tape, "max_pool", x, x->shape[1], kernel, stride, pad, &saved->window))
        return NULL;
    Tensor *y = window_output(tape, x, &saved->window);
    saved->chosen = tape_memory(tape, tensor_count(y) * sizeof(int32_t));
    if (tensor_is_half(x))
        HALVES(tape)->max_pool(tensor_precision(x), &saved->window, tensor_half(x), tensor_half(y),
                               saved->chosen);
    else
        KERNELS(tape)->convolution->max_pool(&saved->window, tensor_f32(x), tensor_f32(y),
                                             saved->chosen);
    tape_backward_reads(tape_record(tape, "max_pool", max_pool_backward, y, 1, &x, saved), 0);
    return y;
}

static void avg_pool_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *y = node->output;
    bool accumulate;
    float *dx = tape_grad(tape, x, &accumulate);
    if (tensor_is_half(x))
        HALVES(tape)->avg_pool_gradient(tensor_precision(x), node->saved, half_gradient(y),
                                        (void *)dx, accumulate);
    else
        KERNELS(tape)->convolution->avg_pool_gradient(node->saved, y->grad, dx, accumulate);
    tape_grad_done(tape, x);
}

Tensor *op_avg_pool(Tape *tape, Tensor *x, size_t kernel, size_t stride, size_t pad) {
    if (!x) return NULL;
    Window *window = tape_alloc(tape, sizeof *window);
    if (!make_window(tape, "avg_pool", x, x->shape[1], kernel, stride, pad, window)) return NULL;
    Tensor *y = window_output(tape, x, window);
    if (tensor_is_half(x))
        HALVES(tape)->avg_pool(tensor_precision(x), window, tensor_half(x), tensor_half(y));
    else
        KERNELS(tape)->convolution->avg_pool(window, tensor_f32(x), tensor_f32(y));
    tape_backward_reads(tape_record(tape, "avg_pool", avg_pool_backward, y, 1, &x, window), 0);
    return y;
}

// ---- upsampling -------------------------------------------------------------------------------

static void upsample2x_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *y = node->output;
    bool accumulate;
    float *dx = tape_grad(tape, x, &accumulate);
    if (tensor_is_half(x))
        HALVES(tape)->upsample2x_gradient(tensor_precision(x), node->saved, half_gradient(y),
                                          (void *)dx, accumulate);
    else
        KERNELS(tape)->pixels->upsample2x_gradient(
            y->grad, dx, accumulate, x->shape[0] * x->shape[1], x->shape[2], x->shape[3]);
    tape_grad_done(tape, x);
}

Tensor *op_upsample2x(Tape *tape, Tensor *x) {
    if (!x) return NULL;
    Window *window = tape_alloc(tape, sizeof *window);
    if (!make_window(tape, "upsample2x", x, 0, 0, 1, 0, window)) return NULL;
    size_t n = window->n, c = window->c, h = window->h, w = window->w;
    Tensor *y = tape_tensor(tape, x->dtype, 4, (size_t[]){n, c, 2 * h, 2 * w});
    if (tensor_is_half(x))
        HALVES(tape)->upsample2x(tensor_precision(x), window, tensor_half(x), tensor_half(y));
    else
        KERNELS(tape)->pixels->upsample2x(tensor_f32(x), tensor_f32(y), n * c, h, w);
    tape_backward_reads(tape_record(tape, "upsample2x", upsample2x_backward, y, 1, &x, window), 0);
    return y;
}

// ---- ResNet's shortcut without parameters -----------------------------------------------------

static void shortcut_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *y = node->output;
    bool accumulate;
    float *dx = tape_grad(tape, x, &accumulate);
    if (tensor_is_half(x))
        HALVES(tape)->shortcut_gradient(tensor_precision(x), node->saved, half_gradient(y),
                                        (void *)dx, accumulate);
    else
        KERNELS(tape)->convolution->shortcut_gradient(node->saved, y->grad, dx, accumulate);
    tape_grad_done(tape, x);
}

Tensor *op_shortcut(Tape *tape, Tensor *x, size_t channels, size_t stride) {
    if (!x) return NULL;
    Window *window = tape_alloc(tape, sizeof *window);
    if (!make_window(tape, "shortcut", x, channels, 1, stride, 0, window)) return NULL;
    if (channels < window->c)
        return tape_fail(tape, "shortcut", "cannot narrow %zu channels to %zu", window->c,
                         channels);
    Tensor *y = window_output(tape, x, window);
    if (tensor_is_half(x))
        HALVES(tape)->shortcut(tensor_precision(x), window, tensor_half(x), tensor_half(y));
    else
        KERNELS(tape)->convolution->shortcut(window, tensor_f32(x), tensor_f32(y));
    tape_backward_reads(tape_record(tape, "shortcut", shortcut_backward, y, 1, &x, window), 0);
    return y;
}
