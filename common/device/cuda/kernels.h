/* kernels.h: shared by the CUDA backend's kernels only. Formulas
 * and argument shapes are in common/device/kernels.h.
 *
 * blas.c is the only file that calls cuBLASLt, dnn.c the only one that calls cuDNN (dnn_absent.c
 * stands in for it where there is none); layout.cu has the passes before and after their products.
 * list.cu has the families that work on lists of tensors: slices and optimizers.
 *
 * Every function asks cuda_current() for the device, and returns when its work is queued.
 */
#ifndef COMMON_DEVICE_CUDA_KERNELS_H
#define COMMON_DEVICE_CUDA_KERNELS_H

#include "common/base/memory.h"
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
extern const HalfKernels cuda_halves;             // half.cu
extern const OptimizerKernels cuda_optimizer;

// A function of another file than the table's: it has the type of the table's entry.
#define CUDA_ENTRY(table, entry, function) __typeof__(*((table *)NULL)->entry) function
CUDA_ENTRY(TransformerKernels, attention_saved, cuda_attention_saved); // attention.cu
CUDA_ENTRY(TransformerKernels, attention_workspace, cuda_attention_workspace);
CUDA_ENTRY(TransformerKernels, attention, cuda_attention);
CUDA_ENTRY(TransformerKernels, attention_gradient, cuda_attention_gradient);
CUDA_ENTRY(HalfKernels, attention, cuda_half_attention); // attention/choice.cu
CUDA_ENTRY(HalfKernels, attention_gradient, cuda_half_attention_gradient);
CUDA_ENTRY(HalfKernels, attention_difference, cuda_attention_difference);
CUDA_ENTRY(HalfKernels, set_attention_difference, cuda_set_attention_difference);
CUDA_ENTRY(HalfKernels, layer_norm, cuda_half_layer_norm); // layer_norm.cu
CUDA_ENTRY(HalfKernels, layer_norm_gradient, cuda_half_layer_norm_gradient);
CUDA_ENTRY(HalfKernels, linear_workspace, cuda_half_linear_workspace); // blas.c
CUDA_ENTRY(HalfKernels, linear, cuda_half_linear);
CUDA_ENTRY(HalfKernels, linear_weight_gradient, cuda_half_linear_weight_gradient);
CUDA_ENTRY(HalfKernels, linear_input_gradient, cuda_half_linear_input_gradient);
CUDA_ENTRY(HalfKernels, linear_gelu, cuda_half_linear_gelu);
CUDA_ENTRY(HalfKernels, linear_gelu_gradient, cuda_half_linear_gelu_gradient);
CUDA_ENTRY(HalfKernels, narrow_linear, cuda_half_narrow_linear); // layout.cu
CUDA_ENTRY(HalfKernels, narrow_rows, cuda_half_narrow_rows);
CUDA_ENTRY(HalfKernels, widen_rows, cuda_half_widen_rows);
CUDA_ENTRY(HalfKernels, cross_entropy, cuda_half_cross_entropy);       // loss.cu
CUDA_ENTRY(HalfKernels, conv2d_workspace, cuda_half_conv2d_workspace); // conv.cu
CUDA_ENTRY(HalfKernels, conv2d, cuda_half_conv2d);
CUDA_ENTRY(HalfKernels, conv2d_input_gradient, cuda_half_conv2d_input_gradient);
CUDA_ENTRY(HalfKernels, conv2d_weight_gradient, cuda_half_conv2d_weight_gradient);
CUDA_ENTRY(HalfKernels, conv2d_bias_gradient, cuda_half_conv2d_bias_gradient);
CUDA_ENTRY(HalfKernels, batch_norm, cuda_half_batch_norm); // norm.cu
CUDA_ENTRY(HalfKernels, batch_norm_eval, cuda_half_batch_norm_eval);
CUDA_ENTRY(HalfKernels, batch_norm_gradient, cuda_half_batch_norm_gradient);
CUDA_ENTRY(HalfKernels, batch_norm_statistics, cuda_half_batch_norm_statistics);
CUDA_ENTRY(HalfKernels, batch_norm_apply, cuda_half_batch_norm_apply);
CUDA_ENTRY(HalfKernels, batch_norm_gradient_sums, cuda_half_batch_norm_gradient_sums);
CUDA_ENTRY(HalfKernels, batch_norm_gradient_apply, cuda_half_batch_norm_gradient_apply);

static inline void cuda_check_float32(Precision precision, const char *what) {
    CHECK(precision == PRECISION_F32, "%s in precision %d", what, (int)precision);
}

// Sets device memory to zeros.
static inline void cuda_clear(void *memory, size_t bytes) {
    if (bytes > 0) CUDA(cudaMemsetAsync(memory, 0, bytes, cuda_current()->compute));
}

// Splits memory into aligned parts: returns the next one, and adds its size to *used. With memory
// NULL it computes *used only.
static inline void *cuda_part(void *memory, size_t *used, size_t bytes) {
    void *part = memory ? (char *)memory + *used : NULL;
    *used += (bytes + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
    return part;
}

// ---- blas.c ----
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
// The gradients of a linear layer's two parameters from 16 bits, in one launch.
void cuda_widen_linear(Precision precision, LinearShape shape, const uint16_t *narrow,
                       const LinearGradient *to);

// ---- attention/choice.cu ----
// Whether tensor cores compute the attention. The first call for a size of heads tries them out,
// and waits for that: it must not be while a graph is recorded.
bool cuda_attention_takes_mma(Precision precision, const Attention *of);

// ---- dnn.c, or dnn_absent.c in builds without cuDNN ----
typedef enum ConvolutionPass {  // computes the third tensor from two operands a, b
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

// ---- norm.cu ----
// sums[c] (+)= the sums of x[n, c, inner] over n and inner. Uses the workspace.
void cuda_sum_channels(const float *x, float *sums, bool accumulate, size_t n, size_t c,
                       size_t inner);

// sums[c] (+)= the sums over the rows of x[rows, c], rounded; x has 16 bits. Uses the workspace.
void cuda_half_sum_channels(CudaStored as, const uint16_t *x, float *sums, bool accumulate,
                            ImageSizes of);

#endif
