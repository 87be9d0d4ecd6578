/* kernels_host.c: rounding to 16 bits, before and after a product. */
#include "common/device/kernels_host.h"

#include "common/base/half.h"
#include "common/base/vectorise.h"

// One loop for each type: with the question inside, the loop could not be vectorised.
// (A type cannot stand in parentheses.) NOLINTBEGIN(bugprone-macro-parentheses)
#define MAP(NAME, TO, FROM, EXPRESSION)                               \
    VECTORISED static void NAME(TO *y, const FROM *x, size_t count) { \
        INDEPENDENT                                                   \
        for (size_t i = 0; i < count; i++) y[i] = (EXPRESSION);       \
    }
// NOLINTEND(bugprone-macro-parentheses)

MAP(narrow_f16, uint16_t, float, half_to_f16(x[i]))
MAP(narrow_bf16, uint16_t, float, half_to_bf16(x[i]))
MAP(widen_f16, float, uint16_t, half_from_f16(x[i]))
MAP(widen_bf16, float, uint16_t, half_from_bf16(x[i]))
MAP(round_f16, float, float, half_from_f16(half_to_f16(x[i])))
MAP(round_bf16, float, float, half_from_bf16(half_to_bf16(x[i])))

void host_narrow(Precision precision, uint16_t *y, const float *x, size_t count) {
    (precision == PRECISION_F16 ? narrow_f16 : narrow_bf16)(y, x, count);
}

void host_widen(Precision precision, float *y, const uint16_t *x, size_t count) {
    (precision == PRECISION_F16 ? widen_f16 : widen_bf16)(y, x, count);
}

void host_round(Precision precision, float *y, const float *x, size_t count) {
    (precision == PRECISION_F16 ? round_f16 : round_bf16)(y, x, count);
}

HostProduct host_begin(Precision precision, HostCounts counts, HostProduct of) {
    if (precision == PRECISION_F32) return of;
    float *a = of.workspace, *b = a + counts.a, *bias = b + counts.b, *c = bias + counts.bias;
    host_round(precision, a, of.a, counts.a);
    host_round(precision, b, of.b, counts.b);
    if (of.bias) host_round(precision, bias, of.bias, counts.bias);
    return (HostProduct){a, b, of.bias ? bias : NULL, c, false, c + counts.c};
}

void host_end(Precision precision, HostCounts counts, const HostProduct *computed, float *c,
              bool accumulate) {
    if (precision == PRECISION_F32) return;
    host_round(precision, accumulate ? computed->c : c, computed->c, counts.c);
    for (size_t i = 0; accumulate && i < counts.c; i++) c[i] += computed->c[i];
}

size_t host_room(Precision precision, HostCounts counts) {
    if (precision == PRECISION_F32) return 0;
    return (counts.a + counts.b + counts.bias + counts.c) * sizeof(float);
}

HostCounts host_matmul_counts(MatmulShape s) {
    return (HostCounts){s.m * s.k, s.k * s.n, s.n, s.m * s.n};
}

size_t host_matmul_workspace(Precision precision, size_t m, size_t n, size_t k) {
    return host_room(precision, host_matmul_counts((MatmulShape){false, false, m, n, k}));
}

size_t host_relu_mask(Precision precision, LinearShape shape) {
    (void)precision, (void)shape;
    return 0;
}

size_t host_attention_saved(const Attention *of) {
    return of->batch * of->heads * of->length * of->length * sizeof(float);
}

size_t host_embedding_workspace(const Embedding *of) {
    (void)of;
    return 0;
}

ConvCounts host_conv_counts(const Window *v) {
    return (ConvCounts){v->n * v->c * v->h * v->w, v->k * v->c * v->kernel * v->kernel,
                        v->n * v->k * v->oh * v->ow};
}

size_t host_conv2d_workspace(Precision precision, const Window *v) {
    ConvCounts counts = host_conv_counts(v);
    return host_room(precision, (HostCounts){counts.x, counts.weight, v->k, counts.y});
}
