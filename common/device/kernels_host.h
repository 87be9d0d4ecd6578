/* kernels_host.h: what the two backends that compute on the host share: products in 16-bit
 * precision. Each has its own products in float32; rounding around them makes the other precisions,
 * exactly as kernels.h says. A CPU without 16-bit arithmetic gains no speed from that, but the same
 * numbers as a GPU's.
 */
#ifndef COMMON_DEVICE_KERNELS_HOST_H
#define COMMON_DEVICE_KERNELS_HOST_H

#include "common/device/kernels.h"

void host_narrow(Precision precision, uint16_t *y, const float *x, size_t count);
// y = x rounded to 16 bits, and as float again; may be in place.
void host_round(Precision precision, float *y, const float *x, size_t count);
void host_widen(Precision precision, float *y, const uint16_t *x, size_t count);

// A product c (+)= a b (+ bias, if that is not NULL) in float32 of whatever shape.
typedef void HostProduct(const void *shape, const float *a, const float *b, const float *bias,
                         float *c, bool accumulate, void *workspace);
typedef struct HostFactors {
    const void *shape;
    const float *a, *b, *bias; // bias: of a forward product, or NULL
    size_t a_count, b_count, bias_count, c_count;
} HostFactors;

// Runs a product in any precision. The workspace has host_room bytes, and behind them as many as
// the product itself needs.
void host_product(Precision precision, HostProduct *product, HostFactors factors, float *c,
                  bool accumulate, void *workspace);
size_t host_room(Precision precision, size_t a_count, size_t b_count, size_t bias_count,
                 size_t c_count);

// The operands of a matrix product c = a b (+ bias), and the workspace of MatrixKernels' products.
HostFactors host_matmul_factors(const MatmulShape *shape, const float *a, const float *b,
                                const float *bias);
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
