/* kernels.h: shared by the CUDA backend's kernels only. Formulas
 * and argument shapes are in common/device/kernels.h.
 *
 * blas.c is the only file that calls cuBLASLt, dnn.c the only one that calls cuDNN (dnn_absent.c
 * stands in for it where there is none); layout.cu is what both need around their products. list.cu
 * has the families that work on lists of tensors: slices and optimizers.
 *
 * Every function asks cuda_current() for the device, and returns when its work is queued.
 */
#ifndef COMMON_DEVICE_CUDA_KERNELS_H
#define COMMON_DEVICE_CUDA_KERNELS_H

#include "common/device/cuda/device.h"

// The families, each of the file that computes it.
extern const ElementwiseKernels cuda_elementwise;
extern const SliceKernels cuda_slices;
extern const MatrixKernels cuda_matrix;
extern const ConvolutionKernels cuda_convolution;
extern const NormKernels cuda_norm;
extern const LossKernels cuda_loss;
extern const PixelKernels cuda_pixels;
extern const TransformerKernels cuda_transformer; // transformer.cu and attention.cu
extern const HalfKernels cuda_halves;             // half.cu, half_conv.cu and half_norm.cu
extern const OptimizerKernels cuda_optimizer;

// ---- blas.c ----
// Its part of HalfKernels is the linear layer's.
size_t cuda_half_linear_workspace(Precision precision, LinearShape shape);
void cuda_half_linear(Compute how, LinearShape shape, const uint16_t *x, const uint16_t *narrow,
                      const float *bias, uint16_t *y);
void cuda_half_linear_weight_gradient(Compute how, LinearShape shape, const uint16_t *dy,
                                      const uint16_t *x, const LinearGradient *to);
void cuda_half_linear_input_gradient(Compute how, LinearShape shape, const uint16_t *dy,
                                     const uint16_t *weight, const ReluMask *of, uint16_t *dx,
                                     bool accumulate);
void cuda_describe(char *buffer, size_t capacity);
int cuda_prepare(Error *err);
// Many products of the same shape, one per image: c_i[m,n] = op(a_i) op(b_i) (+ c_i), where matrix
// i begins i times its stride (in elements; 0: the same for all) after the first. The factors are
// stored as `precision` says, the sums as float32. m, n, k > 0.
typedef struct CudaBatch {
    Precision precision;
    size_t count, stride_a, stride_b, stride_c;
} CudaBatch;
void cuda_matmul_batch(const CudaBatch *batch, MatmulShape shape, const void *a, const void *b,
                       float *c, bool accumulate);

// ---- layout.cu: the end of a product, and the order of images ----
// The way of a product to where it goes:
// y[i] = y[i] + round(bias[i / inner % channels]), then relu if `relu`; y is as `stored`.
typedef struct CudaFinish {
    Precision stored;
    const float *bias; // [channels]; may be NULL
    size_t inner, channels;
    bool relu;
} CudaFinish;
void cuda_finish(const CudaFinish *finish, void *y, size_t count);
// y[n, inner, c] = x[n, c, inner] in 16 bits, or that added to y; and back: y (+)= round(x), where
// x is as `stored`, which may be float32.
void cuda_narrow_images(Precision precision, ImageSizes of, const float *x, uint16_t *y,
                        bool accumulate);
typedef struct CudaStored {
    Precision stored, rounding;
} CudaStored;
void cuda_widen_images(CudaStored as, ImageSizes of, const void *x, float *y, bool accumulate);
// A linear layer's two parameters in one launch (HalfKernels), and its gradients back.
void cuda_half_narrow_linear(Precision precision, LinearShape shape, const float *weight,
                             const float *bias, uint16_t *narrow);
void cuda_widen_linear(Precision precision, LinearShape shape, const uint16_t *narrow,
                       const LinearGradient *to);

// ---- dnn.c, or dnn_absent.c in builds without cuDNN ----
typedef enum ConvolutionPass {  // of which two tensors a, b it makes a third
    CONVOLUTION_FORWARD,        // x, weight: y
    CONVOLUTION_INPUT_GRADIENT, // weight, dy: dx
    CONVOLUTION_WEIGHT_GRADIENT // x, dy: dweight
} ConvolutionPass;
typedef struct ConvolutionPlan ConvolutionPlan; // the current device's
// NULL: by im2col (always, without cuDNN). The first call for a window tries the plan out, and
// waits for that: it must not be while a graph is recorded.
const ConvolutionPlan *cuda_convolution_plan(ConvolutionPass pass, Precision precision,
                                             const Window *window);
// "cuDNN's IMPLICIT_PRECOMP_GEMM (channels last, tensor cores)", "im2col" for NULL.
void cuda_convolution_plan_describe(const ConvolutionPlan *plan, char *buffer, size_t capacity);
size_t cuda_convolution_workspace(const ConvolutionPlan *plan);
// out (+)= the pass's product of a and b, all of them float32 [n, c, h, w], or in 16 bits
// [n, h, w, c]
void cuda_convolution_run(const ConvolutionPlan *plan, const void *a, const void *b, void *out,
                          bool accumulate, void *workspace);
void cuda_convolution_describe(char *buffer, size_t capacity); // "cuDNN 9.19.0", "no cuDNN"

// ---- attention.cu: its parts of TransformerKernels and of HalfKernels ----
size_t cuda_attention_saved(const Attention *of);
size_t cuda_attention_workspace(Precision precision, const Attention *of);
void cuda_attention(Compute how, const Attention *of, const float *qkv, float *y, void *saved);
void cuda_attention_gradient(Compute how, const Attention *of, const float *qkv, const float *y,
                             const void *saved, const float *dy, float *dqkv, bool accumulate);
void cuda_half_attention(Compute how, const Attention *of, const uint16_t *qkv, uint16_t *y,
                         void *saved);
void cuda_half_attention_gradient(Compute how, const Attention *of, const uint16_t *qkv,
                                  const uint16_t *y, const void *saved, const uint16_t *dy,
                                  uint16_t *dqkv, bool accumulate);

// ---- norm.cu ----
// sums[c] (+)= the sums of x[n, c, inner] over n and inner. Uses the workspace.
void cuda_sum_channels(const float *x, float *sums, bool accumulate, size_t n, size_t c,
                       size_t inner);

// ---- half_norm.cu ----
// sums[c] (+)= the sums over the rows of x[rows, c], rounded. Uses the workspace.
void cuda_half_sum_channels(Precision precision, const uint16_t *x, float *sums, bool accumulate,
                            ImageSizes of);

#endif
