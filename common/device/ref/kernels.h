/* kernels.h: shared by the files of the reference backend only. Formulas and
 * argument shapes are in common/device/kernels.h.
 */
#ifndef COMMON_DEVICE_REF_KERNELS_H
#define COMMON_DEVICE_REF_KERNELS_H

#include "common/device/kernels_host.h"

// The families, each of the file that computes it.
extern const ElementwiseKernels ref_elementwise;
extern const SliceKernels ref_slices;
extern const MatrixKernels ref_matrix;
extern const ConvolutionKernels ref_convolution;
extern const NormKernels ref_norm;
extern const LossKernels ref_loss;
extern const PixelKernels ref_pixels;
extern const TransformerKernels ref_transformer;
extern const HalfKernels ref_halves;
extern const OptimizerKernels ref_optimizer;

// Overwrites or adds to one output element.
static inline void ref_put(float *place, double value, bool accumulate) {
    *place = (float)(accumulate ? (double)*place + value : value);
}

// True if a is larger than b, or the only NaN of the two.
static inline bool ref_beats(float a, float b) {
    return a > b || (a != a && b == b);
}

// ---- loss.c, for logits x[k * stride] of `classes` classes ----
// p = their softmax, with the same stride. Returns -log of the target's; NaN if it is no class.
double ref_softmax(const float *x, float *p, size_t classes, size_t stride, int64_t target);
// The class of the largest logit (the first of equals), or -1 if a logit is NaN.
int64_t ref_argmax(const float *x, size_t classes, size_t stride);

#endif
