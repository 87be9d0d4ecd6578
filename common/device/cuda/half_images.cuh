/* half_images.cuh: what the kernels over images in 16 bits, channels last, share (half.cu,
 * half_conv.cu, half_norm.cu): where a pixel lies, and one template for both 16-bit types.
 */
#ifndef COMMON_DEVICE_CUDA_HALF_IMAGES_CUH
#define COMMON_DEVICE_CUDA_HALF_IMAGES_CUH

#include "common/device/cuda/window.cuh"

// function<T>(arguments...), T being the type that `precision` says.
#define BY_PRECISION(precision, function, ...)                    \
    ((precision) == PRECISION_F16 ? function<__half>(__VA_ARGS__) \
                                  : function<__nv_bfloat16>(__VA_ARGS__))

// Stores a value, or adds it to the stored one; rounds once, after the addition.
template <typename T> static inline __device__ void put_half(T *place, float value, bool add) {
    narrow_to(place, add ? widened(*place) + value : value);
}

struct HalfPlace {
    size_t image, row, column, channel;
};

struct HalfImages { // [n, h, w, c]
    size_t n, h, w, c;
    __host__ __device__ size_t count() const { return n * h * w * c; }
    __device__ size_t index(const HalfPlace &at) const {
        return ((at.image * h + at.row) * w + at.column) * c + at.channel;
    }
    __device__ HalfPlace place(size_t i) const {
        return {i / c / w / h, i / c / w % h, i / c % w, i % c};
    }
};

static inline __host__ __device__ HalfImages half_inputs(const Window &v) {
    return {v.n, v.h, v.w, v.c};
}

static inline __host__ __device__ HalfImages half_outputs(const Window &v) {
    return {v.n, v.oh, v.ow, v.k};
}

// ---- half_conv.cu, half_norm.cu: their entries of the table -------------------------------------
size_t cuda_half_conv2d_workspace(Precision precision, const Window *v);
void cuda_half_conv2d(Compute how, const Window *v, const uint16_t *x, const uint16_t *weight,
                      const float *bias, uint16_t *y);
void cuda_half_conv2d_input_gradient(Compute how, const Window *v, const uint16_t *weight,
                                     const uint16_t *dy, uint16_t *dx, bool accumulate);
void cuda_half_conv2d_weight_gradient(Compute how, const Window *v, const uint16_t *x,
                                      const uint16_t *dy, float *dweight, bool accumulate);
void cuda_half_conv2d_bias_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                    float *dbias, bool accumulate);
void cuda_half_batch_norm(Precision precision, const HalfNorm *norm, uint16_t *y);
void cuda_half_batch_norm_eval(Precision precision, const HalfNorm *norm, uint16_t *y);
void cuda_half_batch_norm_gradient(Precision precision, const HalfNorm *norm, const uint16_t *dy,
                                   uint16_t *dx, const NormGradient *to);
void cuda_half_batch_norm_statistics(Precision precision, const HalfNorm *norm);
void cuda_half_batch_norm_apply(Precision precision, const HalfNorm *norm, uint16_t *y);
void cuda_half_batch_norm_gradient_sums(Precision precision, const HalfNorm *norm,
                                        const uint16_t *dy, float *sums, const NormGradient *to);
void cuda_half_batch_norm_gradient_apply(Precision precision, const HalfNorm *norm,
                                         const uint16_t *dy, const float *sums, const double *count,
                                         uint16_t *dx, const NormGradient *to);

#endif
