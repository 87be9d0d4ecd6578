/* kernels_host.h: products in 16-bit precision, common to the two backends that compute on the
 * host. Each backend has its own float32 products; their operands and results are rounded, exactly
 * as kernels.h says. On a CPU without 16-bit arithmetic that is no faster, but has a GPU's numbers.
 */
#ifndef COMMON_DEVICE_KERNELS_HOST_H
#define COMMON_DEVICE_KERNELS_HOST_H

#include "common/device/kernels.h"

void host_narrow(Precision precision, uint16_t *y, const float *x, size_t count);
// y = x rounded to 16 bits, and as float again; may be in place.
void host_round(Precision precision, float *y, const float *x, size_t count);
void host_widen(Precision precision, float *y, const uint16_t *x, size_t count);

// A product c (+)= a b (+ bias). Rounding around a product in float32 computes it in 16 bits:
//
//     HostProduct p = host_begin(how.precision, counts, (HostProduct){...});
//     p.c (+)= p.a p.b + p.bias, in float32
//     host_end(how.precision, counts, &p, c, accumulate);
typedef struct HostProduct {
    const float *a, *b, *bias; // bias: of a forward product, or NULL
    float *c;
    bool accumulate;
    void *workspace; // host_room bytes, then as many as the product itself needs
} HostProduct;

typedef struct HostCounts { // elements
    size_t a, b, bias, c;
} HostCounts;

// Returns the product to compute: `of` itself in PRECISION_F32, otherwise one of rounded operands
// in the workspace, whose workspace is the rest.
HostProduct host_begin(Precision precision, HostCounts counts, HostProduct of);
// Rounds the computed product, and stores it in c or adds it.
void host_end(Precision precision, HostCounts counts, const HostProduct *computed, float *c,
              bool accumulate);
size_t host_room(Precision precision, HostCounts counts);

// A matrix product's operands, and the workspace of MatrixKernels' products.
HostCounts host_matmul_counts(MatmulShape shape);
size_t host_matmul_workspace(Precision precision, size_t m, size_t n, size_t k);

// 0 bytes: on the host the relu's output is its mask.
size_t host_relu_mask(Precision precision, LinearShape shape);

// Both backends save all weights.
size_t host_attention_saved(const Attention *of);
size_t host_embedding_workspace(const Embedding *of); // 0 bytes

static inline bool host_is_token(const Embedding *of, size_t row) {
    return of->tokens[row] >= 0 && (uint64_t)of->tokens[row] < of->vocabulary;
}

// Divides a sum by the divisor. An empty batch has no mean: its loss is 0.
static inline double quotient(double sum, double divisor) {
    return divisor > 0 ? sum / divisor : 0;
}

typedef struct ConvCounts { // elements
    size_t x, weight, y;
} ConvCounts;
ConvCounts host_conv_counts(const Window *window);
// The room of the three products of a convolution.
size_t host_conv2d_workspace(Precision precision, const Window *window);

#endif
