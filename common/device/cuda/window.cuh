/* window.cuh: what the kernels that slide windows over images share, in float32 (conv.cu) and in 16
 * bits (half.cu, half_conv.cu): counts, and which outputs see which inputs.
 */
#ifndef COMMON_DEVICE_CUDA_WINDOW_CUH
#define COMMON_DEVICE_CUDA_WINDOW_CUH

#include "common/device/cuda/half.cuh"

extern "C" {
#include "common/base/memory.h"
#include "common/device/cuda/kernels.h"
}

static inline size_t input_count(const Window *v) {
    return v->n * v->c * v->h * v->w;
}

static inline size_t output_count(const Window *v) {
    return v->n * v->k * v->oh * v->ow;
}

static inline __host__ __device__ size_t taps_of(const Window *v) {
    return v->c * v->kernel * v->kernel;
}

// The outputs [begin, end) of one direction whose windows see input row (or column) `input`: output
// o sees those from o stride - pad on.
struct Range {
    size_t begin, end;
};

static inline __device__ Range seen_by(const Window &v, size_t input, size_t outputs) {
    size_t padded = input + v.pad, last = padded / v.stride;
    return {padded < v.kernel ? 0 : (padded - v.kernel) / v.stride + 1,
            last < outputs ? last + 1 : outputs};
}

// What a window at output o sees of one direction of the input: [begin, end).
static inline __device__ Range sight(const Window &v, size_t output, size_t inputs) {
    size_t first = output * v.stride, end = first + v.kernel; // counted from the padding's edge
    return {first < v.pad ? 0 : first - v.pad, end < v.pad            ? 0
                                               : end - v.pad < inputs ? end - v.pad
                                                                      : inputs};
}

// Is `value` to replace `best`? Larger, or the first NaN.
static inline __device__ bool beats(float value, float best) {
    return value > best || (value != value && best == best);
}

// For how many images there is room for columns ("im2col"), of float32 each.
static inline size_t images_at_a_time(const Window *v) {
    const size_t most = (size_t)64 << 20; // bytes
    size_t image = taps_of(v) * v->oh * v->ow * sizeof(float);
    size_t fit = image > 0 ? most / image : v->n;
    return fit < 1 ? 1 : fit < v->n ? fit : v->n;
}

static inline size_t at_most(size_t count, size_t left) {
    return count < left ? count : left;
}

#endif
