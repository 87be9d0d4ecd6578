/* loss.c: the definition of the losses of rows. */
#include <math.h>

#include "common/device/ref/kernels.h"

static bool is_class(int64_t target, size_t classes) {
    return target >= 0 && (uint64_t)target < classes;
}

double ref_softmax(const float *x, float *p, size_t classes, size_t stride, int64_t target) {
    double max = (double)x[0], total = 0;
    for (size_t k = 0; k < classes; k++) {
        double logit = (double)x[k * stride];
        max = logit > max ? logit : max;
    }
    for (size_t k = 0; k < classes; k++) total += exp((double)x[k * stride] - max);
    for (size_t k = 0; k < classes; k++)
        p[k * stride] = (float)(exp((double)x[k * stride] - max) / total);
    if (!is_class(target, classes)) return (double)NAN;
    return max + log(total) - (double)x[(size_t)target * stride];
}

int64_t ref_argmax(const float *x, size_t classes, size_t stride) {
    size_t best = 0;
    bool numbers = true;
    for (size_t k = 0; k < classes; k++) {
        if (x[k * stride] > x[best * stride]) best = k;
        if (isnan(x[k * stride])) numbers = false;
    }
    return numbers ? (int64_t)best : -1;
}

static void ref_cross_entropy(Labels labels, const float *logits, double divisor,
                              float *probabilities, float *loss) {
    double sum = 0;
    for (size_t i = 0; i < labels.n; i++)
        sum += ref_softmax(logits + i * labels.classes, probabilities + i * labels.classes,
                           labels.classes, 1, labels.target[i]);
    *loss = (float)quotient(sum, divisor);
}

static void ref_cross_entropy_gradient(Labels labels, const float *probabilities, Upstream upstream,
                                       float *dlogits, bool accumulate) {
    double scale = (double)(float)quotient((double)*upstream.gradient, upstream.divisor);
    for (size_t i = 0; i < labels.n; i++)
        for (size_t j = 0; j < labels.classes; j++) {
            size_t index = i * labels.classes + j;
            double onehot = (size_t)labels.target[i] == j ? 1 : 0;
            ref_put(&dlogits[index], ((double)probabilities[index] - onehot) * scale, accumulate);
        }
}

static void ref_squared_error(const float *x, const float *target, double divisor, float *loss,
                              size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += pow((double)x[i] - (double)target[i], 2);
    *loss = (float)quotient(sum, divisor);
}

static void ref_squared_error_gradient(const float *x, const float *target, Upstream upstream,
                                       float *dx, bool accumulate, size_t count) {
    double scale = (double)(float)quotient((double)*upstream.gradient, upstream.divisor);
    for (size_t i = 0; i < count; i++)
        ref_put(&dx[i], 2 * ((double)x[i] - (double)target[i]) * scale, accumulate);
}

static double pos_weight(const Answers *a, size_t index) {
    return a->pos_weight ? (double)a->pos_weight[index % a->classes] : 1;
}

static double softplus(double x) { // log(1 + exp(x)), without overflow
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static void ref_binary_cross_entropy(const Answers *a, double divisor, float *loss) {
    double sum = 0;
    for (size_t i = 0; i < a->n * a->classes; i++) {
        double x = (double)a->logits[i], t = (double)a->target[i], p = pos_weight(a, i);
        sum += (1 - t) * x + (1 + (p - 1) * t) * softplus(-x);
    }
    *loss = (float)quotient(sum, divisor);
}

static void ref_binary_cross_entropy_gradient(const Answers *a, Upstream upstream, float *dlogits,
                                              bool accumulate) {
    double scale = (double)(float)quotient((double)*upstream.gradient, upstream.divisor);
    for (size_t i = 0; i < a->n * a->classes; i++) {
        double x = (double)a->logits[i], t = (double)a->target[i], p = pos_weight(a, i);
        double sigmoid = 1 / (1 + exp(-x));
        ref_put(&dlogits[i], ((1 + (p - 1) * t) * sigmoid - p * t) * scale, accumulate);
    }
}

static void ref_one_hot(const int64_t *labels, float *y, size_t n, size_t classes) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < classes; j++)
            y[i * classes + j] = is_class(labels[i], classes) ? (size_t)labels[i] == j : NAN;
}

static void ref_count_correct(Labels labels, const float *logits, int64_t *correct) {
    *correct = 0;
    for (size_t i = 0; i < labels.n; i++) {
        int64_t best = ref_argmax(logits + i * labels.classes, labels.classes, 1);
        *correct += best >= 0 && best == labels.target[i];
    }
}

const LossKernels ref_loss = {
    .cross_entropy = ref_cross_entropy,
    .cross_entropy_gradient = ref_cross_entropy_gradient,
    .squared_error = ref_squared_error,
    .squared_error_gradient = ref_squared_error_gradient,
    .binary_cross_entropy = ref_binary_cross_entropy,
    .binary_cross_entropy_gradient = ref_binary_cross_entropy_gradient,
    .one_hot = ref_one_hot,
    .count_correct = ref_count_correct,
};
