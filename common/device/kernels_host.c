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

void host_product(Precision precision, HostProduct *product, HostFactors f, float *c,
                  bool accumulate, void *workspace) {
    if (precision == PRECISION_F32) {
        product(f.shape, f.a, f.b, f.bias, c, accumulate, workspace);
        return;
    }
    float *a = workspace, *b = a + f.a_count, *bias = b + f.b_count;
    float *result = bias + f.bias_count;
    host_round(precision, a, f.a, f.a_count);
    host_round(precision, b, f.b, f.b_count);
    if (f.bias) host_round(precision, bias, f.bias, f.bias_count);
    product(f.shape, a, b, f.bias ? bias : NULL, result, false, result + f.c_count);
    if (!accumulate) {
        host_round(precision, c, result, f.c_count);
        return;
    }
    host_round(precision, result, result, f.c_count);
    for (size_t i = 0; i < f.c_count; i++) c[i] += result[i];
}

size_t host_room(Precision precision, size_t a_count, size_t b_count, size_t bias_count,
                 size_t c_count) {
    if (precision == PRECISION_F32) return 0;
    return (a_count + b_count + bias_count + c_count) * sizeof(float);
}

HostFactors host_matmul_factors(const MatmulShape *s, const float *a, const float *b,
                                const float *bias) {
    return (HostFactors){s, a, b, bias, s->m * s->k, s->k * s->n, bias ? s->n : 0, s->m * s->n};
}

size_t host_matmul_workspace(Precision precision, size_t m, size_t n, size_t k) {
    return host_room(precision, m * k, k * n, n, m * n);
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
    return host_room(precision, counts.x, counts.weight, v->k, counts.y);
}
