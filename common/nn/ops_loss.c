/* ops_loss.c: the losses. Each is the sum over this batch, taken in double and divided once by the
 * caller's divisor: that the divisor may be the global batch's is what makes the gradients of
 * shards add up to the gradient of the whole.
 */
#include "common/nn/ops.h"

#define KERNELS(tape) ((tape)->device->kernels)

typedef struct LossSaved {
    const Tensor *target;
    float *probabilities; // cross-entropy: [n, classes], the arena's
    double divisor;
} LossSaved;

// An empty batch (a rank without rows) has loss 0 rather than 0/0.
static Tensor *loss_value(Tape *tape, double sum, double divisor) {
    Tensor *loss = tape_tensor(tape, DTYPE_F32, 0, NULL);
    tape->device->kernels->fill(tensor_f32(loss), divisor > 0 ? (float)(sum / divisor) : 0.0f, 1);
    return loss;
}

// d(loss)/d(sum): the loss's own gradient (1 when backward starts here) over the divisor.
static float gradient_scale(const Node *node, double divisor) {
    Tensor upstream = tensor_make(node->output->device, DTYPE_F32, 0, NULL, node->output->grad);
    return divisor > 0 ? (float)((double)tensor_item(&upstream) / divisor) : 0.0f;
}

static void cross_entropy_backward(Tape *tape, Node *node) {
    Tensor *logits = node->inputs[0];
    const LossSaved *saved = node->saved;
    bool accumulate;
    float *grad = tape_grad(tape, logits, &accumulate);
    if (grad)
        KERNELS(tape)->cross_entropy_gradient(saved->probabilities, saved->target->data,
                                              gradient_scale(node, saved->divisor), grad,
                                              accumulate, logits->shape[0], logits->shape[1]);
    tape_grad_done(tape, logits);
}

// Datasets are checked when they are read; this guards everything else. Returns the first bad row,
// or n.
static size_t first_bad_label(const Tensor *target, size_t classes) {
    const int64_t *labels = target->data;
    for (size_t i = 0; i < target->shape[0]; i++)
        if (labels[i] < 0 || (uint64_t)labels[i] >= classes) return i;
    return target->shape[0];
}

Tensor *op_cross_entropy(Tape *tape, Tensor *logits, Tensor *target, double divisor) {
    if (!logits || !target) return NULL;
    char shape[64];
    if (logits->ndim != 2 || target->ndim != 1 || target->dtype != DTYPE_I64 ||
        target->shape[0] != logits->shape[0])
        return tape_fail(tape, "cross_entropy", "logits %s do not fit %zu targets",
                         tensor_describe(logits, shape, sizeof shape), tensor_count(target));
    size_t n = logits->shape[0], classes = logits->shape[1];
    size_t bad = first_bad_label(target, classes);
    if (bad < n)
        return tape_fail(tape, "cross_entropy", "target %lld of row %zu is out of range [0, %zu)",
                         (long long)((const int64_t *)target->data)[bad], bad, classes);
    LossSaved *saved = tape_alloc(tape, sizeof *saved);
    *saved = (LossSaved){.target = target, .divisor = divisor};
    saved->probabilities = tape_alloc(tape, n * classes * sizeof(float));
    double sum = KERNELS(tape)->cross_entropy(tensor_f32(logits), target->data,
                                              saved->probabilities, n, classes);
    Tensor *loss = loss_value(tape, sum, divisor);
    tape_record(tape, "cross_entropy", cross_entropy_backward, loss, 1, &logits, saved);
    return loss;
}

static void squared_error_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0];
    const LossSaved *saved = node->saved;
    bool accumulate;
    float *grad = tape_grad(tape, x, &accumulate);
    if (grad)
        KERNELS(tape)->squared_error_gradient(tensor_f32(x), tensor_f32(saved->target),
                                              gradient_scale(node, saved->divisor), grad,
                                              accumulate, tensor_count(x));
    tape_grad_done(tape, x);
}

Tensor *op_squared_error(Tape *tape, Tensor *x, Tensor *target, double divisor) {
    if (!x || !target) return NULL;
    char shape_x[64], shape_target[64];
    if (!tensor_same_shape(x, target))
        return tape_fail(tape, "squared_error", "output %s and target %s differ in shape",
                         tensor_describe(x, shape_x, sizeof shape_x),
                         tensor_describe(target, shape_target, sizeof shape_target));
    LossSaved *saved = tape_alloc(tape, sizeof *saved);
    *saved = (LossSaved){.target = target, .divisor = divisor};
    double sum = KERNELS(tape)->squared_error(tensor_f32(x), tensor_f32(target), tensor_count(x));
    Tensor *loss = loss_value(tape, sum, divisor);
    tape_record(tape, "squared_error", squared_error_backward, loss, 1, &x, saved);
    return loss;
}

static void divide_backward(Tape *tape, Node *node) {
    const double *divisor = node->saved;
    bool accumulate;
    float *grad = tape_grad(tape, node->inputs[0], &accumulate);
    if (grad) {
        float *part = accumulate ? tape_scratch(tape, sizeof *part) : grad;
        KERNELS(tape)->fill(part, gradient_scale(node, *divisor), 1);
        if (accumulate) KERNELS(tape)->accumulate(grad, part, 1);
    }
    tape_grad_done(tape, node->inputs[0]);
}

Tensor *op_divide(Tape *tape, Tensor *x, double divisor) {
    if (!x) return NULL;
    CHECK(tensor_count(x) == 1, "op_divide of %zu elements", tensor_count(x));
    double *saved = tape_alloc(tape, sizeof *saved);
    *saved = divisor;
    Tensor *y = loss_value(tape, (double)tensor_item(x), divisor);
    tape_record(tape, "divide", divide_backward, y, 1, &x, saved);
    return y;
}

static void mean_backward(Tape *tape, Node *node) {
    Tensor *x = node->inputs[0];
    size_t count = tensor_count(x);
    bool accumulate;
    float *grad = tape_grad(tape, x, &accumulate);
    if (grad) {
        float *part = accumulate ? tape_scratch(tape, count * sizeof *part) : grad;
        KERNELS(tape)->fill(part, gradient_scale(node, (double)count), count);
        if (accumulate) KERNELS(tape)->accumulate(grad, part, count);
    }
    tape_grad_done(tape, x);
}

Tensor *op_mean(Tape *tape, Tensor *x) {
    if (!x) return NULL;
    size_t count = tensor_count(x);
    Tensor *mean = loss_value(tape, KERNELS(tape)->sum(tensor_f32(x), count), (double)count);
    tape_record(tape, "mean", mean_backward, mean, 1, &x, NULL);
    return mean;
}
