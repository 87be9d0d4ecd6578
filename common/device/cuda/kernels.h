/* kernels.h: what the files of the CUDA backend's kernels share, side by side with
 * common/device/cpu/kernels.h (nobody else includes it). Formulas and argument shapes are in
 * kernels.h.
 *
 * kernels.cu holds the table and what works element by element; list.cu works on
 * lists of tensors (optimizers); loss.cu has the losses of rows; blas.c
 * is the only file that calls cuBLASLt, dnn.c the only one that calls cuDNN
 * (dnn_absent.c stands in for it where there is none); layout.cu is what
 * both need around their products; conv.cu slides windows; norm.cu
 * normalises; pixels.cu is for labels of pixels.
 *
 * Every function asks cuda_current() for the device, and returns when its work is queued.
 */
#ifndef COMMON_DEVICE_CUDA_KERNELS_H
#define COMMON_DEVICE_CUDA_KERNELS_H

#include "common/device/cuda/device.h"

// ---- kernels.cu ----
void cuda_bias_gradient(float *dbias, const float *dy, size_t rows, size_t columns,
                        bool accumulate);
void cuda_narrow(Precision precision, uint16_t *y, const float *x, size_t count);
void cuda_widen(Precision precision, float *y, const uint16_t *x, size_t count);
void cuda_accumulate(float *y, const float *x, size_t count);

// y[1] = the sum of x[count] / divisor, by one block: for the second stage of a sum.
void cuda_mean_of(const double *x, double divisor, float *y, size_t count);

// ---- list.cu: one launch for a list of tensors ----
void cuda_unscale(const Slice *slices, size_t slice_count, float factor, float *not_finite);
void cuda_pack(float *y, const Slice *slices, size_t slice_count);
void cuda_unpack(const Slice *slices, size_t slice_count, const float *x);
void cuda_sgd(const SgdConfig *config, const SgdTensor *tensors, size_t tensor_count);
void cuda_adam(const AdamConfig *config, const AdamTensor *tensors, size_t tensor_count);

// ---- loss.cu ----
void cuda_cross_entropy(const float *logits, const int64_t *target, double divisor,
                        float *probabilities, float *loss, size_t n, size_t classes);
void cuda_cross_entropy_gradient(const float *probabilities, const int64_t *target,
                                 const float *upstream, double divisor, float *dlogits,
                                 bool accumulate, size_t n, size_t classes);
void cuda_squared_error(const float *x, const float *target, double divisor, float *loss,
                        size_t count);
void cuda_squared_error_gradient(const float *x, const float *target, const float *upstream,
                                 double divisor, float *dx, bool accumulate, size_t count);
void cuda_binary_cross_entropy(const Answers *answers, double divisor, float *loss);
void cuda_binary_cross_entropy_gradient(const Answers *answers, double divisor,
                                        const float *upstream, float *dlogits, bool accumulate);
void cuda_one_hot(const int64_t *labels, float *y, size_t n, size_t classes);
void cuda_count_correct(const float *logits, const int64_t *target, int64_t *correct, size_t n,
                        size_t classes);

// ---- blas.c ----
void cuda_describe(char *buffer, size_t capacity);
int cuda_prepare(Error *err);
size_t cuda_matmul_workspace(Precision precision, size_t m, size_t n, size_t k);
void cuda_matmul(Precision precision, bool transpose_a, bool transpose_b, size_t m, size_t n,
                 size_t k, const float *a, const float *b, float *c, bool accumulate,
                 void *workspace);
void cuda_linear(Precision precision, const float *x, const float *weight, const float *bias,
                 bool relu, float *y, size_t rows, size_t out, size_t in, void *workspace);
// Many products of the same shape, one per image: c_i[m,n] = op(a_i) op(b_i) (+ c_i), where matrix
// i begins i times its stride (in elements; 0: the same for all) after the first. The factors are
// stored as `precision` says, the sums as float32. m, n, k > 0.
typedef struct CudaBatch {
    size_t count, stride_a, stride_b, stride_c;
} CudaBatch;
void cuda_matmul_batch(Precision precision, const CudaBatch *batch, bool transpose_a,
                       bool transpose_b, size_t m, size_t n, size_t k, const void *a, const void *b,
                       float *c, bool accumulate);

// ---- layout.cu: 16 bits, bias, relu, and the order of images ----
// The way of a product to where it goes:
// y[i] (+)= round(product[i] + round(bias[i / inner % channels])), relu'd if asked for. The product
// is as `stored`; in float32 it may be y itself.
typedef struct CudaFinish {
    Precision stored, rounding;
    const float *bias; // [channels]; may be NULL
    size_t inner, channels;
    bool relu, accumulate;
} CudaFinish;
void cuda_finish(const CudaFinish *finish, float *y, const void *product, size_t count);
// Images [n, c, inner] that a library is to have as [n, inner, c] and in 16 bits: both factors of a
// product in one launch.
typedef struct CudaImages {
    size_t n, c, inner;
} CudaImages;
typedef struct CudaNarrowing {
    CudaImages of;
    const float *x; // [n, c, inner]
    uint16_t *y;    // [n, inner, c]
} CudaNarrowing;
void cuda_narrow_images(Precision precision, const CudaNarrowing *first,
                        const CudaNarrowing *second);
// product[n, inner, c] -> y[n, c, inner]; finish->channels is c, and its `inner` means nothing.
void cuda_finish_images(const CudaFinish *finish, const CudaImages *of, float *y,
                        const uint16_t *product);

// ---- conv.cu: convolutions by im2col, or by dnn.c where there is cuDNN
size_t cuda_conv2d_workspace(Precision precision, const Window *window);
void cuda_conv2d(Precision precision, const Window *window, const float *x, const float *weight,
                 const float *bias, float *y, void *workspace);
void cuda_conv2d_input_gradient(Precision precision, const Window *window, const float *weight,
                                const float *dy, float *dx, bool accumulate, void *workspace);
void cuda_conv2d_weight_gradient(Precision precision, const Window *window, const float *x,
                                 const float *dy, float *dweight, bool accumulate, void *workspace);
void cuda_conv2d_bias_gradient(const Window *window, const float *dy, float *dbias,
                               bool accumulate);
void cuda_shortcut(const Window *window, const float *x, float *y);
void cuda_shortcut_gradient(const Window *window, const float *dy, float *dx, bool accumulate);
void cuda_max_pool(const Window *window, const float *x, float *y, int32_t *chosen);
void cuda_max_pool_gradient(const Window *window, const int32_t *chosen, const float *dy, float *dx,
                            bool accumulate);
void cuda_avg_pool(const Window *window, const float *x, float *y);
void cuda_avg_pool_gradient(const Window *window, const float *dy, float *dx, bool accumulate);

// ---- dnn.c, or dnn_absent.c in builds without cuDNN ----
typedef enum ConvolutionPass {  // of which two tensors a, b it makes a third
    CONVOLUTION_FORWARD,        // x, weight: y
    CONVOLUTION_INPUT_GRADIENT, // weight, dy: dx
    CONVOLUTION_WEIGHT_GRADIENT // x, dy: dweight
} ConvolutionPass;
typedef struct ConvolutionPlan ConvolutionPlan; // the current device's
// NULL: by im2col (always, without cuDNN).
const ConvolutionPlan *cuda_convolution_plan(ConvolutionPass pass, Precision precision,
                                             const Window *window);
size_t cuda_convolution_workspace(const ConvolutionPlan *plan);
// out (+)= the pass's product of a and b, + bias[k] (may be NULL, and is in the gradients)
void cuda_convolution_run(const ConvolutionPlan *plan, const float *a, const float *b,
                          const float *bias, float *out, bool accumulate, void *workspace);
void cuda_convolution_describe(char *buffer, size_t capacity); // "cuDNN 9.19.0", "no cuDNN"

// ---- norm.cu ----
// sums[c] (+)= the sums of x[n, c, inner] over n and inner. Uses the workspace.
void cuda_sum_channels(const float *x, float *sums, bool accumulate, size_t n, size_t c,
                       size_t inner);
void cuda_batch_norm(const float *x, const float *weight, const float *bias, float *y, float *mean,
                     float *invstd, float *running_mean, float *running_var, float momentum,
                     float eps, size_t n, size_t c, size_t inner);
void cuda_batch_norm_eval(const float *x, const float *weight, const float *bias, float *y,
                          const float *running_mean, const float *running_var, float eps, size_t n,
                          size_t c, size_t inner);
void cuda_batch_norm_gradient(const float *x, const float *dy, const float *weight,
                              const float *mean, const float *invstd, float *dx, bool add_dx,
                              float *dweight, bool add_dweight, float *dbias, bool add_dbias,
                              size_t n, size_t c, size_t inner);
void cuda_batch_norm_eval_gradient(const float *x, const float *dy, const float *weight,
                                   const float *running_mean, const float *running_var, float eps,
                                   float *dx, bool add_dx, float *dweight, bool add_dweight,
                                   float *dbias, bool add_dbias, size_t n, size_t c, size_t inner);
void cuda_batch_norm_statistics(const float *x, float *mean, float *invstd, float eps, size_t n,
                                size_t c, size_t inner);
void cuda_batch_norm_merge(const float *rows, size_t ranks, float *mean, float *invstd,
                           float *running_mean, float *running_var, float momentum, float eps,
                           double *count, size_t c);
void cuda_batch_norm_apply(const float *x, const float *weight, const float *bias, float *y,
                           const float *mean, const float *invstd, size_t n, size_t c,
                           size_t inner);
void cuda_batch_norm_gradient_sums(const float *x, const float *dy, const float *mean,
                                   const float *invstd, float *sums, float *dweight,
                                   bool add_dweight, float *dbias, bool add_dbias, size_t n,
                                   size_t c, size_t inner);
void cuda_batch_norm_gradient_apply(const float *x, const float *dy, const float *weight,
                                    const float *mean, const float *invstd, const float *sums,
                                    const double *count, float *dx, bool add_dx, size_t n, size_t c,
                                    size_t inner);

// ---- pixels.cu ----
void cuda_upsample2x(const float *x, float *y, size_t planes, size_t h, size_t w);
void cuda_upsample2x_gradient(const float *dy, float *dx, bool accumulate, size_t planes, size_t h,
                              size_t w);
void cuda_pixel_cross_entropy(const float *logits, const int64_t *target, float *probabilities,
                              float *losses, size_t n, size_t classes, size_t inner);
void cuda_hard_pixels(const float *losses, const int64_t *target, float threshold, size_t least,
                      uint8_t *kept, int64_t *kept_count, float *sum, size_t count);
void cuda_pixel_cross_entropy_gradient(const float *probabilities, const int64_t *target,
                                       const uint8_t *kept, const float *upstream, float *dlogits,
                                       bool accumulate, size_t n, size_t classes, size_t inner);
void cuda_predict_pixels(const float *logits, int32_t *predicted, size_t n, size_t classes,
                         size_t inner);

#endif
