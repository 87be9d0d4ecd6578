/* ops_conv.c: the operations on images [n, c, h, w]: convolution, batch norm, pooling, upsampling,
 * shortcut. */
#include "common/nn/ops_half.h"

#define KERNELS(tape) device_kernels((tape)->device)

// Fills a window for x and checks that it fits. Returns false after recording an error.
static bool make_window(Tape *tape, const char *op, const Tensor *x, size_t k, size_t kernel,
                        size_t stride, size_t pad, Window *window) {
    char shape[64];
    if (x->ndim != 4) {
        tape_fail(tape, op, "expected an image [n, c, h, w], got %s",
                  tensor_describe(x, shape, sizeof shape));
        return false;
    }
    if (stride == 0) {
        tape_fail(tape, op, "the stride is 0");
        return false;
    }
    *window = (Window){.n = x->shape[0],
                       .c = x->shape[1],
                       .h = x->shape[2],
                       .w = x->shape[3],
                       .k = k,
                       .kernel = kernel,
                       .stride = stride,
                       .pad = pad};
    if (window->h + 2 * pad < kernel || window->w + 2 * pad < kernel) {
        tape_fail(tape, op, "a window of %zu with padding %zu is larger than the input %s", kernel,
                  pad, tensor_describe(x, shape, sizeof shape));
        return false;
    }
    window->oh = (window->h + 2 * pad - kernel) / stride + 1;
    window->ow = (window->w + 2 * pad - kernel) / stride + 1;
    return true;
}

static Window *keep_window(Tape *tape, const Window *window) {
    Window *kept = tape_alloc(tape, sizeof *kept);
    *kept = *window;
    return kept;
}

static Tensor *window_output(Tape *tape, const Window *window) {
    return tape_tensor(tape, DTYPE_F32, 4,
                       (size_t[]){window->n, window->k, window->oh, window->ow});
}

// ---- convolution ------------------------------------------------------------------------------

static void conv2d_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    const Window *window = node->saved;
    const float *dy = node->output->grad;
    Precision precision = tape->precision;
    void *workspace =
        tape_scratch(tape, KERNELS(tape)->convolution->conv2d_workspace(precision, window));
    bool accumulate;
    float *grad;
    if ((grad = tape_grad(tape, bias, &accumulate)))
        KERNELS(tape)->convolution->conv2d_bias_gradient(window, dy, grad, accumulate);
    tape_grad_done(tape, bias);
    if ((grad = tape_grad(tape, weight, &accumulate)))
        KERNELS(tape)->convolution->conv2d_weight_gradient((Compute){precision, workspace}, window,
                                                           tensor_f32(x), dy, grad, accumulate);
    tape_grad_done(tape, weight);
    if ((grad = tape_grad(tape, x, &accumulate)))
        KERNELS(tape)->convolution->conv2d_input_gradient((Compute){precision, workspace}, window,
                                                          tensor_f32(weight), dy, grad, accumulate);
    tape_grad_done(tape, x);
}

Tensor *op_conv2d(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, size_t stride, size_t pad) {
    if (!x) return NULL;
    Window window;
    if (!make_window(tape, "conv2d", x, weight->shape[0], weight->shape[2], stride, pad, &window))
        return NULL;
    if (window.c != weight->shape[1])
        return tape_fail(tape, "conv2d", "the input has %zu channels, the weight wants %zu",
                         window.c, weight->shape[1]);
    if (tape_stores_halves(tape)) return half_conv2d(tape, op_half(tape, x), weight, bias, &window);
    Tensor *y = window_output(tape, &window);
    void *workspace =
        tape_scratch(tape, KERNELS(tape)->convolution->conv2d_workspace(tape->precision, &window));
    KERNELS(tape)->convolution->conv2d((Compute){tape->precision, workspace}, &window,
                                       tensor_f32(x), tensor_f32(weight),
                                       bias ? tensor_f32(bias) : NULL, tensor_f32(y));
    tape_record(tape, "conv2d", conv2d_backward, y, 3, (Tensor *[]){x, weight, bias},
                keep_window(tape, &window));
    return y;
}

// ---- batch norm -------------------------------------------------------------------------------

typedef struct BatchNormSaved {
    BatchNorm norm;
    bool training;
} BatchNormSaved;

static void batch_norm_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    const BatchNormSaved *saved = node->saved;
    float *dy = node->output->grad;
    NormGradient to = {0};
    to.dx = tape_grad(tape, x, &to.add_dx);
    to.dweight = tape_grad(tape, weight, &to.add_dweight);
    to.dbias = tape_grad(tape, bias, &to.add_dbias);
    if (saved->training)
        KERNELS(tape)->norm->batch_norm_gradient(&saved->norm, dy, &to);
    else
        KERNELS(tape)->norm->batch_norm_eval_gradient(&saved->norm, dy, &to);
    tape_grad_done(tape, bias);
    tape_grad_done(tape, weight);
    tape_grad_done(tape, x);
}

// The residual's gradient is dy masked by the relu, so it is computed first; without a residual the
// kernel masks dy itself.
static void batch_norm_relu_backward(Tape *tape, Node *node) {
    BatchNormSaved *saved = node->saved;
    Tensor *y = node->output, *residual = node->inputs[3];
    saved->norm.y = tensor_f32(y);
    saved->norm.relu = saved->training && !residual;
    if (!saved->norm.relu)
        KERNELS(tape)->elementwise->activation_gradient(ACTIVATION_RELU, y->grad, tensor_f32(y),
                                                        y->grad, tensor_count(y), false);
    batch_norm_backward(tape, node);
    if (residual) tape_pass_gradient(tape, node, residual, true);
}

void batch_norm_count_batch(const BatchNormState *state) {
    Tensor *counter = state->num_batches_tracked; // on the device, as every buffer is
    device_kernels(counter->device)->elementwise->count_up(counter->data);
}

bool batch_norm_check_input(Tape *tape, const char *op, const Tensor *x,
                            const BatchNormState *state) {
    char shape[64];
    size_t c = tensor_count(state->weight);
    if ((x->ndim == 2 || x->ndim == 4) && x->shape[1] == c) return true;
    tape_fail(tape, op, "expected [n, %zu] or [n, %zu, h, w], got %s", c, c,
              tensor_describe(x, shape, sizeof shape));
    return false;
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

static void batch_norm_train(Tape *tape, BatchNorm *norm, Tensor *y) {
    norm->mean = tape_memory(tape, norm->c * sizeof(float));
    norm->invstd = tape_memory(tape, norm->c * sizeof(float));
    KERNELS(tape)->norm->batch_norm(norm, tensor_f32(y));
}

static bool is_batch(Tape *tape, const Tensor *x) {
    char shape[64];
    if (!tape->training || tensor_count(x) != x->shape[1]) return true;
    tape_fail(tape, "batch_norm",
              "Expected more than 1 value per channel when training, got input size %s",
              tensor_describe(x, shape, sizeof shape));
    return false;
}

// The forward of batch norm, with or without the relu.
static Tensor *normalize(Tape *tape, Tensor *x, const BatchNormState *state,
                         BatchNormSaved *saved) {
    Tensor *y = tape_tensor(tape, DTYPE_F32, x->ndim, x->shape);
    saved->norm.num_batches_tracked = state->num_batches_tracked->data;
    if (tape->training)
        batch_norm_train(tape, &saved->norm, y);
    else
        KERNELS(tape)->norm->batch_norm_eval(&saved->norm, tensor_f32(y));
    return y;
}

static BatchNormSaved *save_norm(Tape *tape, const Tensor *x, const BatchNormState *state) {
    BatchNormSaved *saved = tape_alloc(tape, sizeof *saved);
    *saved = (BatchNormSaved){batch_norm_of(x, state), tape->training};
    return saved;
}

// A 16-bit input stays in 16 bits, except in evaluation while gradients are recorded.
static bool stays_half(const Tape *tape, const Tensor *x) {
    return tensor_is_half(x) && (tape->training || !tape->recording);
}

Tensor *op_batch_norm(Tape *tape, Tensor *x, const BatchNormState *state) {
    if (!x || !batch_norm_check_input(tape, "batch_norm", x, state) || !is_batch(tape, x))
        return NULL;
    if (stays_half(tape, x)) return half_batch_norm(tape, x, state, false, NULL);
    x = op_float32(tape, x);
    BatchNormSaved *saved = save_norm(tape, x, state);
    Tensor *y = normalize(tape, x, state, saved);
    tape_record(tape, "batch_norm", batch_norm_backward, y, 3,
                (Tensor *[]){x, state->weight, state->bias}, saved);
    return y;
}

Tensor *op_batch_norm_relu(Tape *tape, Tensor *x, const BatchNormState *state, Tensor *residual) {
    if (!x || !batch_norm_check_input(tape, "batch_norm", x, state) || !is_batch(tape, x))
        return NULL;
    char shape_x[64], shape_r[64];
    if (residual && !tensor_same_shape(x, residual))
        return tape_fail(tape, "batch_norm", "a residual %s does not fit %s",
                         tensor_describe(residual, shape_r, sizeof shape_r),
                         tensor_describe(x, shape_x, sizeof shape_x));
    if (residual && tensor_is_half(x) != tensor_is_half(residual)) // then their sum is float32
        return op_relu(tape, op_add(tape, op_batch_norm(tape, x, state), residual));
    if (stays_half(tape, x)) return half_batch_norm(tape, x, state, true, residual);
    x = op_float32(tape, x);
    residual = op_float32(tape, residual);
    BatchNormSaved *saved = save_norm(tape, x, state);
    saved->norm.relu = true;
    saved->norm.residual = residual ? tensor_f32(residual) : NULL;
    Tensor *y = normalize(tape, x, state, saved);
    tape_record(tape, "batch_norm_relu", batch_norm_relu_backward, y, 4,
                (Tensor *[]){x, state->weight, state->bias, residual}, saved);
    return y;
}

// ---- pooling ----------------------------------------------------------------------------------

typedef struct MaxPoolSaved {
    Window window;
    int32_t *chosen; // [n, c, oh, ow], device memory
} MaxPoolSaved;

static void max_pool_backward(Tape *tape, Node *node) {
    const MaxPoolSaved *saved = node->saved;
    bool accumulate;
    float *dx = tape_grad(tape, node->inputs[0], &accumulate);
    if (dx)
        KERNELS(tape)->convolution->max_pool_gradient(&saved->window, saved->chosen,
                                                      node->output->grad, dx, accumulate);
    tape_grad_done(tape, node->inputs[0]);
}

Tensor *op_max_pool(Tape *tape, Tensor *x, size_t kernel, size_t stride, size_t pad) {
    if (!x) return NULL;
    MaxPoolSaved *saved = tape_alloc(tape, sizeof *saved);
    if (x->ndim == 4 && 2 * pad > kernel)
        return tape_fail(tape, "max_pool", "padding %zu is more than half the kernel %zu", pad,
                         kernel);
    if (!make_window(tape, "max_pool", x, x->shape[1], kernel, stride, pad, &saved->window))
        return NULL;
    if (tensor_is_half(x)) return half_max_pool(tape, x, &saved->window);
    Tensor *y = window_output(tape, &saved->window);
    saved->chosen = tape_memory(tape, tensor_count(y) * sizeof(int32_t));
    KERNELS(tape)->convolution->max_pool(&saved->window, tensor_f32(x), tensor_f32(y),
                                         saved->chosen);
    tape_record(tape, "max_pool", max_pool_backward, y, 1, &x, saved);
    return y;
}

static void avg_pool_backward(Tape *tape, Node *node) {
    bool accumulate;
    float *dx = tape_grad(tape, node->inputs[0], &accumulate);
    if (dx)
        KERNELS(tape)->convolution->avg_pool_gradient(node->saved, node->output->grad, dx,
                                                      accumulate);
    tape_grad_done(tape, node->inputs[0]);
}

Tensor *op_avg_pool(Tape *tape, Tensor *x, size_t kernel, size_t stride, size_t pad) {
    if (!x) return NULL;
    Window window;
    if (!make_window(tape, "avg_pool", x, x->shape[1], kernel, stride, pad, &window)) return NULL;
    if (tensor_is_half(x)) return half_avg_pool(tape, x, &window);
    Tensor *y = window_output(tape, &window);
    KERNELS(tape)->convolution->avg_pool(&window, tensor_f32(x), tensor_f32(y));
    tape_record(tape, "avg_pool", avg_pool_backward, y, 1, &x, keep_window(tape, &window));
    return y;
}

// ---- upsampling -------------------------------------------------------------------------------

static void upsample2x_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0];
    bool accumulate;
    float *dx = tape_grad(tape, x, &accumulate);
    if (dx)
        KERNELS(tape)->pixels->upsample2x_gradient(node->output->grad, dx, accumulate,
                                                   x->shape[0] * x->shape[1], x->shape[2],
                                                   x->shape[3]);
    tape_grad_done(tape, x);
}

Tensor *op_upsample2x(Tape *tape, Tensor *x) {
    if (!x) return NULL;
    Window window; // only for its check that x is an image
    if (!make_window(tape, "upsample2x", x, 0, 0, 1, 0, &window)) return NULL;
    if (tensor_is_half(x)) return half_upsample2x(tape, x, &window);
    Tensor *y =
        tape_tensor(tape, DTYPE_F32, 4, (size_t[]){window.n, window.c, 2 * window.h, 2 * window.w});
    KERNELS(tape)->pixels->upsample2x(tensor_f32(x), tensor_f32(y), window.n * window.c, window.h,
                                      window.w);
    tape_record(tape, "upsample2x", upsample2x_backward, y, 1, &x, NULL);
    return y;
}

// ---- ResNet's shortcut without parameters -----------------------------------------------------

static void shortcut_backward(Tape *tape, Node *node) {
    bool accumulate;
    float *dx = tape_grad(tape, node->inputs[0], &accumulate);
    if (dx)
        KERNELS(tape)->convolution->shortcut_gradient(node->saved, node->output->grad, dx,
                                                      accumulate);
    tape_grad_done(tape, node->inputs[0]);
}

Tensor *op_shortcut(Tape *tape, Tensor *x, size_t channels, size_t stride) {
    if (!x) return NULL;
    Window window;
    if (!make_window(tape, "shortcut", x, channels, 1, stride, 0, &window)) return NULL;
    if (channels < window.c)
        return tape_fail(tape, "shortcut", "cannot narrow %zu channels to %zu", window.c, channels);
    if (tensor_is_half(x)) return half_shortcut(tape, x, &window);
    Tensor *y = window_output(tape, &window);
    KERNELS(tape)->convolution->shortcut(&window, tensor_f32(x), tensor_f32(y));
    tape_record(tape, "shortcut", shortcut_backward, y, 1, &x, keep_window(tape, &window));
    return y;
}
