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

#endif
