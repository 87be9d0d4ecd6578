/* kernels_host.c: rounding to 16 bits, before and after a product. */
#include "common/device/kernels_host.h"

#include "common/base/half.h"

void host_narrow(Precision precision, uint16_t *y, const float *x, size_t count) {
    if (precision == PRECISION_F16)
        for (size_t i = 0; i < count; i++) y[i] = half_to_f16(x[i]);
    else
        for (size_t i = 0; i < count; i++) y[i] = half_to_bf16(x[i]);
}

void host_widen(Precision precision, float *y, const uint16_t *x, size_t count) {
    if (precision == PRECISION_F16)
        for (size_t i = 0; i < count; i++) y[i] = half_from_f16(x[i]);
    else
        for (size_t i = 0; i < count; i++) y[i] = half_from_bf16(x[i]);
}

static float rounded(Precision precision, float x) {
    return precision == PRECISION_F16 ? half_from_f16(half_to_f16(x))
                                      : half_from_bf16(half_to_bf16(x));
}

void host_round(Precision precision, float *y, const float *x, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = rounded(precision, x[i]);
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
    for (size_t i = 0; i < f.c_count; i++) {
        float value = rounded(precision, result[i]);
        c[i] = accumulate ? c[i] + value : value;
    }
}

size_t host_room(Precision precision, size_t a_count, size_t b_count, size_t bias_count,
                 size_t c_count) {
    if (precision == PRECISION_F32) return 0;
    return (a_count + b_count + bias_count + c_count) * sizeof(float);
}

size_t host_relu_mask(Precision precision, LinearShape shape) {
    (void)precision, (void)shape;
    return 0;
}

ConvCounts host_conv_counts(const Window *v) {
    return (ConvCounts){v->n * v->c * v->h * v->w, v->k * v->c * v->kernel * v->kernel,
                        v->n * v->k * v->oh * v->ow};
}
