/* ops_loss.c: the losses. Each is the sum over this batch, accumulated in double and divided once
 * by the caller's divisor. With the global batch's divisor, the gradients of shards add up to the
 * gradient of the whole batch. An empty batch (a rank without rows) has loss 0, not 0/0.
 *
 * Loss and its gradient stay in device memory; all operations are asynchronous.
 */
#include "common/nn/ops_half.h"

#define KERNELS(tape) device_kernels((tape)->device)

typedef struct LossSaved {
    const Tensor *target, *pos_weight;
    float *probabilities; // cross-entropy: [n, classes], device memory
    double divisor;
} LossSaved;

static void cross_entropy_backward(Tape *tape, TapeNode *node) {
    Tensor *logits = node->inputs[0];
    const LossSaved *saved = node->saved;
    bool accumulate;
    float *grad = tape_grad(tape, logits, &accumulate);
    KERNELS(tape)->loss->cross_entropy_gradient(
        (Labels){saved->target->data, logits->shape[0], logits->shape[1]}, saved->probabilities,
        (Upstream){node->output->grad, saved->divisor}, grad, accumulate);
    tape_grad_done(tape, logits);
}

static Tensor *scalar(Tape *tape) {
    return tape_tensor(tape, DTYPE_F32, 0, NULL);
}

static bool check_labels(Tape *tape, const Tensor *logits, Tensor *target) {
    if (!tape_check_devices(tape, "cross_entropy", &target, 1)) return false;
    if (logits->ndim != 2 || target->ndim != 1 || target->dtype != DTYPE_I64 ||
        target->shape[0] != logits->shape[0])
        return tape_fail(tape, "cross_entropy", "logits %s do not fit %zu targets",
                         tensor_describe(logits).text, tensor_count(target));
    size_t n = logits->shape[0], classes = logits->shape[1];
    // Datasets are checked on loading. Other labels are checked here if the host can read them; on
    // a GPU the kernel sets the loss to NaN.
    size_t bad = tensor_find_outside(target, 0, (int64_t)classes);
    if (bad < n)
        return tape_fail(tape, "cross_entropy", "target %lld of row %zu is out of range [0, %zu)",
                         (long long)((const int64_t *)target->data)[bad], bad, classes);
    return true;
}

Tensor *op_cross_entropy(Tape *tape, Tensor *logits, Tensor *target, double divisor) {
    if (!logits || !target || !check_labels(tape, logits, target)) return NULL;
    logits = op_float32(tape, logits);
    size_t n = logits->shape[0], classes = logits->shape[1];
    LossSaved *saved = tape_alloc(tape, sizeof *saved);
    *saved = (LossSaved){.target = target, .divisor = divisor};
    saved->probabilities = tape_memory(tape, n * classes * sizeof(float));
    Tensor *loss = scalar(tape);
    KERNELS(tape)->loss->cross_entropy((Labels){target->data, n, classes}, tensor_f32(logits),
                                       divisor, saved->probabilities, tensor_f32(loss));
    tape_record(tape, "cross_entropy", cross_entropy_backward, loss, 1, &logits, saved);
    return loss;
}

// The gradient for a loss's own gradient of 1 was computed in forward.
static void in_place_backward(Tape *tape, TapeNode *node) {
    Tensor *logits = node->inputs[0];
    CHECK(node->output->grad == tape->one, "the loss with hits is not the root of backward");
    tape_grad_in_place(logits, node->saved);
    tape_grad_done(tape, logits);
}

// Float16's gradient must be scaled before it is rounded, by the loss's own gradient.
static Tensor *loss_in_place(Tape *tape, Tensor *logits, const Tensor *target, double divisor,
                             int64_t *hits) {
    Tensor *loss = scalar(tape);
    uint16_t *memory = tensor_half_rows(logits);
    tape_record(tape, "cross_entropy", in_place_backward, loss, 1, &logits, memory);
    const HalfLogits of = {.precision = tensor_precision(logits),
                           .labels = {target->data, logits->shape[0], logits->shape[1]},
                           .pitch = tensor_pitch(logits),
                           .logits = memory,
                           .divisor = divisor,
                           .gradient = loss->requires_grad};
    HALVES(tape)->cross_entropy(&of, tensor_f32(loss), hits);
    if (of.gradient) tape_overwrite(logits, NULL, "cross_entropy");
    return loss;
}

Tensor *op_cross_entropy_and_hits(Tape *tape, Tensor *logits, Tensor *target, double divisor,
                                  int64_t *hits) {
    if (!logits || !target || !check_labels(tape, logits, target)) return NULL;
    const bool records = tape->recording && logits->requires_grad;
    if (!tape_check_values(tape, "cross_entropy", &logits, 1)) return NULL;
    if (tensor_is_half(logits) && !(records && logits->dtype == DTYPE_F16) &&
        tape_may_overwrite(tape, logits))
        return loss_in_place(tape, logits, target, divisor, hits);
    logits = op_float32(tape, logits);
    Labels labels = {target->data, logits->shape[0], logits->shape[1]};
    Tensor *loss = op_cross_entropy(tape, logits, target, divisor);
    KERNELS(tape)->loss->count_correct(labels, tensor_f32(logits), hits);
    return loss;
}

// ---- yes or no for every class ------------------------------------------------------------------

static Answers answers_of(const Tensor *logits, const Tensor *target, const Tensor *pos_weight) {
    return (Answers){.logits = tensor_f32(logits),
                     .target = tensor_f32(target),
                     .pos_weight = pos_weight ? tensor_f32(pos_weight) : NULL,
                     .n = logits->shape[0],
                     .classes = logits->shape[1]};
}

static void binary_cross_entropy_backward(Tape *tape, TapeNode *node) {
    Tensor *logits = node->inputs[0];
    const LossSaved *saved = node->saved;
    const Answers answers = answers_of(logits, saved->target, saved->pos_weight);
    bool accumulate;
    float *grad = tape_grad(tape, logits, &accumulate);
    KERNELS(tape)->loss->binary_cross_entropy_gradient(
        &answers, (Upstream){node->output->grad, saved->divisor}, grad, accumulate);
    tape_grad_done(tape, logits);
}

Tensor *op_binary_cross_entropy(Tape *tape, Tensor *logits, Tensor *target,
                                const Tensor *pos_weight, double divisor) {
    if (!logits || !target) return NULL;
    Tensor *const others[] = {target, (Tensor *)pos_weight};
    if (!tape_check_devices(tape, "binary_cross_entropy", others, 2)) return NULL;
    if (logits->ndim != 2 || !tensor_same_shape(logits, target) || target->dtype != DTYPE_F32)
        return tape_fail(tape, "binary_cross_entropy", "logits %s do not fit targets %s",
                         tensor_describe(logits).text, tensor_describe(target).text);
    if (pos_weight && (pos_weight->ndim != 1 || pos_weight->shape[0] != logits->shape[1]))
        return tape_fail(tape, "binary_cross_entropy", "pos_weight %s does not fit %zu classes",
                         tensor_describe(pos_weight).text, logits->shape[1]);
    logits = op_float32(tape, logits);
    LossSaved *saved = tape_alloc(tape, sizeof *saved);
    *saved = (LossSaved){.target = target, .pos_weight = pos_weight, .divisor = divisor};
    const Answers answers = answers_of(logits, target, pos_weight);
    Tensor *loss = scalar(tape);
    KERNELS(tape)->loss->binary_cross_entropy(&answers, divisor, tensor_f32(loss));
    tape_record(tape, "binary_cross_entropy", binary_cross_entropy_backward, loss, 1, &logits,
                saved);
    return loss;
}

Tensor *op_one_hot(Tape *tape, Tensor *labels, size_t classes) {
    if (!labels || !tape_check_devices(tape, "one_hot", &labels, 1)) return NULL;
    if (labels->ndim != 1 || labels->dtype != DTYPE_I64)
        return tape_fail(tape, "one_hot", "expected labels [n], got %s",
                         tensor_describe(labels).text);
    size_t bad = tensor_find_outside(labels, 0, (int64_t)classes), n = labels->shape[0];
    if (bad < n)
        return tape_fail(tape, "one_hot", "label %lld of row %zu is out of range [0, %zu)",
                         (long long)((const int64_t *)labels->data)[bad], bad, classes);
    Tensor *y = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){n, classes});
    KERNELS(tape)->loss->one_hot(labels->data, tensor_f32(y), n, classes);
    return y;
}

// ---- squared error ------------------------------------------------------------------------------

static void squared_error_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0];
    const LossSaved *saved = node->saved;
    bool accumulate;
    float *grad = tape_grad(tape, x, &accumulate);
    KERNELS(tape)->loss->squared_error_gradient(tensor_f32(x), tensor_f32(saved->target),
                                                (Upstream){node->output->grad, saved->divisor},
                                                grad, accumulate, tensor_count(x));
    tape_grad_done(tape, x);
}

Tensor *op_squared_error(Tape *tape, Tensor *x, Tensor *target, double divisor) {
    if (!x || !target || !tape_check_devices(tape, "squared_error", &target, 1)) return NULL;
    if (!tensor_same_shape(x, target))
        return tape_fail(tape, "squared_error", "output %s and target %s differ in shape",
                         tensor_describe(x).text, tensor_describe(target).text);
    x = op_float32(tape, x);
    LossSaved *saved = tape_alloc(tape, sizeof *saved);
    *saved = (LossSaved){.target = op_float32(tape, target), .divisor = divisor};
    Tensor *loss = scalar(tape);
    KERNELS(tape)->loss->squared_error(tensor_f32(x), tensor_f32(target), divisor, tensor_f32(loss),
                                       tensor_count(x));
    tape_record(tape, "squared_error", squared_error_backward, loss, 1, &x, saved);
    return loss;
}

// d(sum / divisor)/dx is the same for every element.
static void spread_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0];
    const double *divisor = node->saved;
    bool accumulate;
    float *grad = tape_grad(tape, x, &accumulate);
    KERNELS(tape)->elementwise->spread(grad, node->output->grad, *divisor, accumulate,
                                       tensor_count(x));
    tape_grad_done(tape, x);
}

static Tensor *divide_sum(Tape *tape, const char *op, Tensor *x, double divisor) {
    double *saved = tape_alloc(tape, sizeof *saved);
    *saved = divisor;
    x = op_float32(tape, x);
    Tensor *y = scalar(tape);
    KERNELS(tape)->elementwise->mean(tensor_f32(x), divisor, tensor_f32(y), tensor_count(x));
    tape_record(tape, op, spread_backward, y, 1, &x, saved);
    return y;
}

Tensor *op_divide(Tape *tape, Tensor *x, double divisor) {
    if (!x) return NULL;
    CHECK(tensor_count(x) == 1, "op_divide of %zu elements", tensor_count(x));
    return divide_sum(tape, "divide", x, divisor);
}

Tensor *op_mean(Tape *tape, Tensor *x) {
    return x ? divide_sum(tape, "mean", x, (double)tensor_count(x)) : NULL;
}
