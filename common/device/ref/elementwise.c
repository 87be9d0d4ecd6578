/* elementwise.c: reference definitions of the element-wise operations. */
#include <math.h>

#include "common/device/ref/kernels.h"

static void ref_fill(float *y, float value, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = value;
}

static void ref_add(float *y, const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

static void ref_accumulate(float *y, const float *x, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = y[i] + x[i];
}

static void ref_scale(float *y, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = y[i] * factor;
}

static void ref_mean(const float *x, double divisor, float *y, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i];
    *y = (float)quotient(sum, divisor);
}

static void ref_spread(float *y, const float *x, double divisor, bool accumulate, size_t count) {
    for (size_t i = 0; i < count; i++) ref_put(&y[i], quotient((double)*x, divisor), accumulate);
}

static void ref_count_up(int64_t *counter) {
    *counter += 1;
}

// ---- activations -------------------------------------------------------------------------------

static double relu(double x) {
    return x < 0 ? 0 : x; // NaN < 0 is false: it stays
}

static double relu_gradient(double y, double dy) {
    return y > 0 ? dy : 0;
}

static const double ROOT = 0.7978845608028654, CUBE = 0.044715; // sqrt(2 / pi)

static double gelu(double x) {
    return x / 2 * (1 + tanh(ROOT * (x + CUBE * x * x * x)));
}

static double gelu_gradient(double x, double dy) {
    double t = tanh(ROOT * (x + CUBE * x * x * x));
    double slope = (1 + t) / 2 + x / 2 * (1 - t * t) * ROOT * (1 + 3 * CUBE * x * x);
    return dy * slope;
}

static const struct {
    double (*value)(double x);
    double (*gradient)(double saved, double dy); // saved: x (relu: or y)
} DEFINITIONS[ACTIVATIONS] = {
    [ACTIVATION_RELU] = {relu, relu_gradient},
    [ACTIVATION_GELU] = {gelu, gelu_gradient},
};

static void ref_activation(Activation f, float *y, float *x, size_t count, bool save) {
    (void)save;
    for (size_t i = 0; i < count; i++) y[i] = (float)DEFINITIONS[f].value((double)x[i]);
}

static void ref_activation_gradient(Activation f, float *dx, const float *saved, const float *dy,
                                    size_t count, bool accumulate) {
    for (size_t i = 0; i < count; i++)
        ref_put(&dx[i], DEFINITIONS[f].gradient((double)saved[i], (double)dy[i]), accumulate);
}

const ElementwiseKernels ref_elementwise = {
    .fill = ref_fill,
    .add = ref_add,
    .accumulate = ref_accumulate,
    .scale = ref_scale,
    .activation = ref_activation,
    .activation_gradient = ref_activation_gradient,
    .narrow = host_narrow,
    .widen = host_widen,
    .mean = ref_mean,
    .spread = ref_spread,
    .count_up = ref_count_up,
};
