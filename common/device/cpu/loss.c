/* loss.c: the CPU backend's losses of rows, their gradients, and how many predictions are right. */
#include <math.h>

#include "common/device/cpu/exponential.h"
#include "common/device/cpu/kernels.h"

// p[j] = exp(row[j] - max), in whole vectors: the last vector overlaps with its predecessor.
static inline void row_exponentials(float *restrict p, const float *restrict row, float max,
                                    size_t classes) {
    for (size_t j = 0; classes < WIDE && j < classes; j++) p[j] = exponential(row[j] - max);
    for (size_t j = 0; classes >= WIDE && j < classes; j += WIDE) {
        const size_t at = j + WIDE <= classes ? j : classes - WIDE;
        for (size_t k = 0; k < WIDE; k++) p[at + k] = exponential(row[at + k] - max);
    }
}

// Writes the row's softmax, and returns the loss: -log of the label's. The largest value is
// subtracted, so that no exponential overflows.
VECTORISED static double row_cross_entropy(float *p, const float *row, size_t classes,
                                           int64_t label) {
    const float max = wide_max(row, classes);
    row_exponentials(p, row, max, classes);
    const double total = cpu_sum(p, classes), factor = 1 / total;
    for (size_t j = 0; j < classes; j++) p[j] = (float)((double)p[j] * factor);
    bool is_class = label >= 0 && (uint64_t)label < classes;
    return is_class ? log(total) - ((double)row[label] - (double)max) : (double)NAN;
}

static void cpu_cross_entropy(Labels labels, const float *logits, double divisor,
                              float *probabilities, float *loss) {
    double sum = 0;
    size_t classes = labels.classes;
    for (size_t i = 0; i < labels.n; i++)
        sum += row_cross_entropy(probabilities + i * classes, logits + i * classes, classes,
                                 labels.target[i]);
    *loss = (float)quotient(sum, divisor);
}

// All classes of a row as if none were the label's, which then gets its own.
VECTORISED static void row_gradient(float *dlogits, const float *p, size_t classes, int64_t label,
                                    float scale, bool accumulate) {
    bool is_class = label >= 0 && (uint64_t)label < classes;
    float before = is_class && accumulate ? dlogits[label] : 0;
    INDEPENDENT
    for (size_t j = 0; j < classes; j++) {
        float old = dlogits[j]; // read in any case: a load under a condition is not vectorised
        dlogits[j] = accumulate ? old + p[j] * scale : p[j] * scale;
    }
    if (is_class) dlogits[label] = before + (p[label] - 1) * scale;
}

static void cpu_cross_entropy_gradient(Labels labels, const float *probabilities, Upstream upstream,
                                       float *dlogits, bool accumulate) {
    float scale = (float)quotient((double)*upstream.gradient, upstream.divisor);
    size_t classes = labels.classes;
    for (size_t i = 0; i < labels.n; i++)
        row_gradient(dlogits + i * classes, probabilities + i * classes, classes, labels.target[i],
                     scale, accumulate);
}

VECTORISED static double sum_squares(const float *x, const float *target, size_t count) {
    return lanes_reduce(x, NULL, target, count);
}

static void cpu_squared_error(const float *x, const float *target, double divisor, float *loss,
                              size_t count) {
    *loss = (float)quotient(sum_squares(x, target, count), divisor);
}

VECTORISED static void cpu_squared_error_gradient(const float *x, const float *target,
                                                  Upstream upstream, float *dx, bool accumulate,
                                                  size_t count) {
    float scale = (float)quotient((double)*upstream.gradient, upstream.divisor);
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        float gradient = 2 * (x[i] - target[i]) * scale;
        dx[i] = accumulate ? dx[i] + gradient : gradient;
    }
}

// The weight of a "yes" in the column that `index` is in.
static float pos_weight(const Answers *answers, size_t index) {
    return answers->pos_weight ? answers->pos_weight[index % answers->classes] : 1;
}

static void cpu_binary_cross_entropy(const Answers *answers, double divisor, float *loss) {
    double sum = 0;
    for (size_t i = 0; i < answers->n * answers->classes; i++) {
        float x = answers->logits[i], t = answers->target[i];
        // log(1 + exp(-x)); a NaN among the logits reaches the sum by itself
        float softplus = (x < 0 ? -x : 0) + log1pf(expf(-fabsf(x)));
        float weight = 1 + (pos_weight(answers, i) - 1) * t;
        sum += (double)((1 - t) * x) + (double)(weight * softplus);
    }
    *loss = (float)quotient(sum, divisor);
}

static void cpu_binary_cross_entropy_gradient(const Answers *answers, Upstream upstream,
                                              float *dlogits, bool accumulate) {
    float scale = (float)quotient((double)*upstream.gradient, upstream.divisor);
    for (size_t i = 0; i < answers->n * answers->classes; i++) {
        float p = pos_weight(answers, i), t = answers->target[i];
        float sigmoid = 1 / (1 + expf(-answers->logits[i]));
        float gradient = ((1 + (p - 1) * t) * sigmoid - p * t) * scale;
        dlogits[i] = accumulate ? dlogits[i] + gradient : gradient;
    }
}

static void cpu_one_hot(const int64_t *labels, float *y, size_t n, size_t classes) {
    for (size_t i = 0; i < n; i++) {
        bool is_class = labels[i] >= 0 && (uint64_t)labels[i] < classes;
        for (size_t j = 0; j < classes; j++) y[i * classes + j] = is_class ? 0 : NAN;
        if (is_class) y[i * classes + (size_t)labels[i]] = 1;
    }
}

static void cpu_count_correct(Labels labels, const float *logits, int64_t *correct) {
    *correct = 0;
    for (size_t i = 0; i < labels.n; i++) {
        if (labels.target[i] < 0 || (uint64_t)labels.target[i] >= labels.classes) continue;
        const float *row = logits + i * labels.classes;
        size_t label = (size_t)labels.target[i];
        bool largest = true; // no comparison with a NaN is, and the label's is with itself, too
        for (size_t j = 0; j < label; j++) largest = largest && row[j] < row[label];
        for (size_t j = label; j < labels.classes; j++) largest = largest && row[j] <= row[label];
        *correct += largest;
    }
}

const LossKernels cpu_loss = {
    .cross_entropy = cpu_cross_entropy,
    .cross_entropy_gradient = cpu_cross_entropy_gradient,
    .squared_error = cpu_squared_error,
    .squared_error_gradient = cpu_squared_error_gradient,
    .binary_cross_entropy = cpu_binary_cross_entropy,
    .binary_cross_entropy_gradient = cpu_binary_cross_entropy_gradient,
    .one_hot = cpu_one_hot,
    .count_correct = cpu_count_correct,
};
