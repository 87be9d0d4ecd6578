/* product.h: matrix products on processors with AVX-512.
 *
 * OpenBLAS (blas.c) packs both operands and passes over c once more, for zeros or a bias. Where
 * matrices are small, as in a small gpt, that is a third of its time. Here a is packed only
 * where that pays, and the sums begin with the bias.
 *
 * The bits of an element of c: chains of at most PRODUCT_CHAIN fused multiply-adds in the order of
 * k, the first of which begins with the bias, are added to c in their order. So a row has the same
 * bits in every batch.
 */
#ifndef COMMON_DEVICE_CPU_PRODUCT_H
#define COMMON_DEVICE_CPU_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

enum { PRODUCT_CHAIN = 192 };

// A matrix that lies inside a larger one: rows are `stride` elements apart.
typedef struct CpuMatrix {
    const float *data;
    size_t stride;
    bool transpose;
} CpuMatrix;

// Rows of memory, `stride` elements apart.
typedef struct CpuRows {
    const float *data;
    size_t stride, count;
} CpuRows;

// c[m,n] (+)= a b + bias
typedef struct CpuProduct {
    size_t m, n, k;
    CpuMatrix a, b;
    const float *bias; // [n]; NULL: 0
    float *c;          // rows are c_stride elements apart
    size_t c_stride;
    bool accumulate;
    CpuRows ahead; // of a later product: k elements of each are prefetched; count may be 0
} CpuProduct;

// Whether this processor has the instructions of the next function.
bool product_runs_here(void);
void product_multiply(const CpuProduct *of);

#endif
