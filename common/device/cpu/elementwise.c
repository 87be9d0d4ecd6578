/* elementwise.c: the CPU backend's kernels that go over their arrays element by element.
 *
 * All of these are bound by memory: each passes over its arrays once. The means of
 * vectorising a build for every x86-64 are in cpu/kernels.h (VECTORISED, INDEPENDENT, Lanes).
 */
#include "common/base/memory.h"
#include "common/device/cpu/exponential.h"
#include "common/device/cpu/kernels.h"

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
    return lanes_reduce(x, NULL, NULL, count);
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

// ---- activations -------------------------------------------------------------------------------

VECTORISED static void relu(float *y, float *x, size_t count, bool save) {
    (void)save;
    INDEPENDENT
    for (size_t i = 0; i < count; i++) y[i] = x[i] < 0 ? 0 : x[i]; // NaN < 0 is false: it stays
}

VECTORISED static void relu_gradient(float *dx, const float *y, const float *dy, size_t count,
                                     bool accumulate) {
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        float gradient = dy[i]; // loaded unconditionally: a conditional load is not vectorised
        gradient = y[i] > 0 ? gradient : 0;
        dx[i] = accumulate ? dx[i] + gradient : gradient;
    }
}

enum { STRIDE = 64, AHEAD = 256 }; // elements of a round, and how far ahead of them is prefetched

static inline void prefetch(const float *x) {
    for (size_t i = 0; i < STRIDE; i += MEMORY_ALIGNMENT / sizeof *x) __builtin_prefetch(x + i, 1);
}

// The other activations save their derivative, because it shares the exponential with the value.
// Each is a function f##_at that returns f(x) and stores f'(x); the macro is its loop. Its vectors
// are long chains of operations, so few of their loads are in flight: memory is prefetched.
#define SAVES_SLOPE(f)                                                      \
    VECTORISED static void f(float *y, float *x, size_t count, bool save) { \
        for (size_t i = 0; i < count;) {                                    \
            const size_t end = count - i < STRIDE ? count : i + STRIDE;     \
            prefetch(x + i + AHEAD);                                        \
            prefetch(y + i + AHEAD);                                        \
            INDEPENDENT                                                     \
            for (; i < end; i++) {                                          \
                float v = x[i], slope, value = f##_at(v, &slope);           \
                y[i] = value;                                               \
                x[i] = save ? slope : v;                                    \
            }                                                               \
        }                                                                   \
    }

VECTORISED static void slope_gradient(float *dx, const float *slope, const float *dy, size_t count,
                                      bool accumulate) {
    INDEPENDENT
    for (size_t i = 0; i < count; i++)
        dx[i] = accumulate ? dx[i] + dy[i] * slope[i] : dy[i] * slope[i];
}

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)) = s, where 2u = ROOT (x + CUBE x^3). So GELU is x s, and
// its derivative s + x s (1 - s) 2u'.
#define ROOT 1.5957691216057308f // 2 sqrt(2 / pi)
#define CUBE 0.044715f

static inline float gelu_at(float x, float *slope) {
    float s = 1 / (1 + exponential(-ROOT * (x + CUBE * x * x * x)));
    *slope = s + x * s * (1 - s) * (ROOT * (1 + 3 * CUBE * x * x));
    return x * s;
}
SAVES_SLOPE(gelu)

static const struct {
    void (*forward)(float *y, float *x, size_t count, bool save);
    void (*gradient)(float *dx, const float *saved, const float *dy, size_t count, bool accumulate);
} LOOPS[ACTIVATIONS] = {
    [ACTIVATION_RELU] = {relu, relu_gradient},
    [ACTIVATION_GELU] = {gelu, slope_gradient},
};

static void cpu_activation(Activation f, float *y, float *x, size_t count, bool save) {
    LOOPS[f].forward(y, x, count, save);
}

static void cpu_activation_gradient(Activation f, float *dx, const float *saved, const float *dy,
                                    size_t count, bool accumulate) {
    LOOPS[f].gradient(dx, saved, dy, count, accumulate);
}

const ElementwiseKernels cpu_elementwise = {
    .fill = cpu_fill,
    .add = cpu_add,
    .accumulate = cpu_accumulate,
    .scale = cpu_scale,
    .activation = cpu_activation,
    .activation_gradient = cpu_activation_gradient,
    .narrow = host_narrow,
    .widen = host_widen,
    .mean = cpu_mean,
    .spread = cpu_spread,
    .count_up = cpu_count_up,
};
