/* elementwise.c: the CPU backend's kernels that go over their arrays element by element.
 *
 * All of these are bound by memory: each passes over its arrays once. What makes them fast on a
 * build for every x86-64 is in cpu/kernels.h (VECTORISED, INDEPENDENT, Lanes).
 */
#include "common/device/cpu/kernels.h"
#include "common/device/kernels_host.h"

VECTORISED static void cpu_fill(float *y, float value, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = value;
}

VECTORISED static void cpu_add(float *y, const float *a, const float *b, size_t count) {
    INDEPENDENT
    for (size_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

VECTORISED static void cpu_accumulate(float *y, const float *x, size_t count) {
    INDEPENDENT
    for (size_t i = 0; i < count; i++) y[i] += x[i];
}

VECTORISED static void cpu_scale(float *y, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] *= factor;
}

VECTORISED double cpu_sum(const float *x, size_t count) {
    Lanes sums[2] = {{0}}, values;
    double sum = 0;
    size_t i = 0;
    for (; i + LANES_ROUND <= count; i += LANES_ROUND)
        for (size_t half = 0; half < 2; half++) {
            lanes_load(&values, x + i + half * LANES);
            sums[half] += values;
        }
    for (; i < count; i++) sum += (double)x[i];
    return sum + lanes_sum(sums);
}

static void cpu_mean(const float *x, double divisor, float *y, size_t count) {
    *y = (float)quotient(cpu_sum(x, count), divisor);
}

static void cpu_spread(float *y, const float *x, double divisor, bool accumulate, size_t count) {
    float value = (float)quotient((double)*x, divisor);
    for (size_t i = 0; i < count; i++) y[i] = accumulate ? y[i] + value : value;
}

static void cpu_count_up(int64_t *counter) {
    *counter += 1;
}

VECTORISED static void cpu_relu(float *y, const float *x, size_t count) {
    INDEPENDENT
    for (size_t i = 0; i < count; i++) y[i] = x[i] < 0 ? 0 : x[i]; // NaN < 0 is false: it stays
}

VECTORISED static void cpu_relu_gradient(float *dx, const float *y, const float *dy, size_t count,
                                         bool accumulate) {
    if (accumulate) {
        INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            float gradient = dy[i]; // read in any case: a load under a condition is not vectorised
            dx[i] += y[i] > 0 ? gradient : 0;
        }
    } else {
        INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            float gradient = dy[i];
            dx[i] = y[i] > 0 ? gradient : 0;
        }
    }
}

const ElementwiseKernels cpu_elementwise = {
    .fill = cpu_fill,
    .add = cpu_add,
    .accumulate = cpu_accumulate,
    .scale = cpu_scale,
    .relu = cpu_relu,
    .relu_gradient = cpu_relu_gradient,
    .narrow = host_narrow,
    .widen = host_widen,
    .mean = cpu_mean,
    .spread = cpu_spread,
    .count_up = cpu_count_up,
};
