/* elementwise.c: the definition of what is computed element by element. */
#include <math.h>

#include "common/device/kernels_host.h"
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

static void ref_relu(float *y, const float *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (isnan(x[i]))
            y[i] = x[i];
        else
            y[i] = x[i] > 0 ? x[i] : 0;
    }
}

static void ref_relu_gradient(float *dx, const float *y, const float *dy, size_t count,
                              bool accumulate) {
    for (size_t i = 0; i < count; i++) ref_put(&dx[i], y[i] > 0 ? (double)dy[i] : 0, accumulate);
}

const ElementwiseKernels ref_elementwise = {
    .fill = ref_fill,
    .add = ref_add,
    .accumulate = ref_accumulate,
    .scale = ref_scale,
    .relu = ref_relu,
    .relu_gradient = ref_relu_gradient,
    .narrow = host_narrow,
    .widen = host_widen,
    .mean = ref_mean,
    .spread = ref_spread,
    .count_up = ref_count_up,
};
