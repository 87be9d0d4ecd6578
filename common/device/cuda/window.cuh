/* window.cuh: images and the windows that slide over them: where a pixel is stored, which outputs
 * see which inputs, and what is computed from those alone: shortcut, pooling, upsampling. conv.cu
 * and pixels.cu instantiate it for float32, half.cu for 16 bits.
 *
 * A gradient is gathered, never scattered: one thread per input pixel accumulates the gradients of
 * all windows that see it, in a fixed order. So windows may overlap, and nothing is atomic.
 */
#ifndef COMMON_DEVICE_CUDA_WINDOW_CUH
#define COMMON_DEVICE_CUDA_WINDOW_CUH

#include "common/device/cuda/half.cuh"

extern "C" {
#include "common/base/memory.h"
#include "common/device/cuda/kernels.h"
}

static inline __host__ __device__ size_t taps_of(const Window *v) {
    return v->c * v->kernel * v->kernel;
}

// ---- images ----------------------------------------------------------------------------------

// One element. `plane` is image * c + channel where the channels come first (`channel` is 0 then),
// the image where they are last.
struct Place {
    size_t plane, row, column, channel;
};

template <typename T> struct Images { // of float [n, c, h, w], of 16-bit types [n, h, w, c]
    static const bool LAST = !std::is_same_v<T, float>;
    size_t n, c, h, w;

    __host__ __device__ size_t count() const { return n * c * h * w; }
    __device__ Place place(size_t i) const {
        return LAST ? Place{i / c / w / h, i / c / w % h, i / c % w, i % c}
                    : Place{i / w / h, i / w % h, i % w, 0};
    }
    __device__ size_t image(const Place &at) const { return LAST ? at.plane : at.plane / c; }
    __device__ size_t channel(const Place &at) const { return LAST ? at.channel : at.plane % c; }
    // The index of another pixel of the same image and channel.
    __device__ size_t index(const Place &at, size_t row, size_t column) const {
        size_t pixel = (at.plane * h + row) * w + column;
        return LAST ? pixel * c + at.channel : pixel;
    }
    __device__ size_t index(size_t image, size_t channel, size_t row, size_t column) const {
        return index(LAST ? Place{image, 0, 0, channel} : Place{image * c + channel, 0, 0, 0}, row,
                     column);
    }
};

template <typename T> static __host__ __device__ Images<T> inputs_of(const Window &v) {
    return {v.n, v.c, v.h, v.w};
}

template <typename T> static __host__ __device__ Images<T> outputs_of(const Window &v) {
    return {v.n, v.k, v.oh, v.ow};
}

// y[i] (+)= operation(place of i) for each element of the images.
template <typename T, typename Operation>
static void for_each_place(const Images<T> &of, Stored<T> *y, bool accumulate,
                           const Operation &operation) {
    T *to = (T *)y;
    size_t count = of.count();
    cuda_run(count, [=] __device__() {
        FOR_EACH(i, count) put_half(&to[i], operation(of.place(i)), accumulate);
    });
}

// ---- inputs of a window ----------------------------------------------------------------------

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

// The inputs [begin, end) of one direction that the window at an output sees.
static inline __device__ Range sight(const Window &v, size_t output, size_t inputs) {
    size_t first = output * v.stride, end = first + v.kernel; // counted from the padding's edge
    return {first < v.pad ? 0 : first - v.pad, end < v.pad            ? 0
                                               : end - v.pad < inputs ? end - v.pad
                                                                      : inputs};
}

// ---- shortcut --------------------------------------------------------------------------------

template <typename T> static void shortcut(const Window *window, const Stored<T> *x, Stored<T> *y) {
    const Window v = *window;
    const Images<T> in = inputs_of<T>(v), out = outputs_of<T>(v);
    const T *from = (const T *)x;
    for_each_place(out, y, false, [=] __device__(const Place &at) {
        size_t c = out.channel(at) - (v.k - v.c) / 2; // before the first: huge
        size_t i = in.index(out.image(at), c, at.row * v.stride, at.column * v.stride);
        return c < v.c ? widened(from[i]) : 0;
    });
}

template <typename T>
static void shortcut_gradient(const Window *window, const Stored<T> *dy, Stored<T> *dx,
                              bool accumulate) {
    const Window v = *window;
    const Images<T> in = inputs_of<T>(v), out = outputs_of<T>(v);
    const T *from = (const T *)dy;
    for_each_place(in, dx, accumulate, [=] __device__(const Place &at) {
        size_t row = at.row / v.stride, column = at.column / v.stride;
        size_t k = in.channel(at) + (v.k - v.c) / 2;
        bool taken =
            at.row % v.stride == 0 && at.column % v.stride == 0 && row < v.oh && column < v.ow;
        return taken ? widened(from[out.index(in.image(at), k, row, column)]) : 0;
    });
}

// ---- pooling ---------------------------------------------------------------------------------

// Whether `value` replaces `best`: larger, or the first NaN.
static inline __device__ bool beats(float value, float best) {
    return value > best || (value != value && best == best);
}

template <typename T>
static void max_pool(const Window *window, const Stored<T> *x, Stored<T> *y, int32_t *chosen) {
    const Window v = *window;
    CHECK(v.pad < v.kernel, "kernel %zu, pad %zu: a window of padding only", v.kernel, v.pad);
    const Images<T> in = inputs_of<T>(v), out = outputs_of<T>(v);
    const T *from = (const T *)x;
    for_each_place(out, y, false, [=] __device__(const Place &at) {
        Range rows = sight(v, at.row, v.h), cols = sight(v, at.column, v.w);
        size_t best = rows.begin * v.w + cols.begin;
        float largest = widened(from[in.index(at, rows.begin, cols.begin)]);
        for (size_t iy = rows.begin; iy < rows.end; iy++)
            for (size_t ix = cols.begin; ix < cols.end; ix++) {
                float value = widened(from[in.index(at, iy, ix)]);
                if (!beats(value, largest)) continue;
                best = iy * v.w + ix;
                largest = value;
            }
        chosen[out.index(at, at.row, at.column)] = (int32_t)best;
        return largest;
    });
}

// In float32 the sum begins with the old dx, as the reference's; in 16 bits that is added last.
template <typename T>
static void max_pool_gradient(const Window *window, const int32_t *chosen, const Stored<T> *dy,
                              Stored<T> *dx, bool accumulate) {
    const Window v = *window;
    const Images<T> in = inputs_of<T>(v), out = outputs_of<T>(v);
    const T *from = (const T *)dy, *old = (const T *)dx;
    const bool begins = accumulate && std::is_same_v<T, float>;
    for_each_place(in, dx, accumulate && !begins, [=] __device__(const Place &at) {
        Range rows = seen_by(v, at.row, v.oh), cols = seen_by(v, at.column, v.ow);
        int32_t pixel = (int32_t)(at.row * v.w + at.column);
        float sum = begins ? widened(old[in.index(at, at.row, at.column)]) : 0;
        for (size_t oy = rows.begin; oy < rows.end; oy++)
            for (size_t ox = cols.begin; ox < cols.end; ox++) {
                size_t output = out.index(at, oy, ox);
                if (chosen[output] == pixel) sum += widened(from[output]);
            }
        return sum;
    });
}

template <typename T> static void avg_pool(const Window *window, const Stored<T> *x, Stored<T> *y) {
    const Window v = *window;
    const Images<T> in = inputs_of<T>(v), out = outputs_of<T>(v);
    const T *from = (const T *)x;
    for_each_place(out, y, false, [=] __device__(const Place &at) {
        Range rows = sight(v, at.row, v.h), cols = sight(v, at.column, v.w);
        float sum = 0;
        for (size_t iy = rows.begin; iy < rows.end; iy++)
            for (size_t ix = cols.begin; ix < cols.end; ix++)
                sum += widened(from[in.index(at, iy, ix)]);
        return sum / (float)(v.kernel * v.kernel);
    });
}

template <typename T>
static void avg_pool_gradient(const Window *window, const Stored<T> *dy, Stored<T> *dx,
                              bool accumulate) {
    const Window v = *window;
    const Images<T> in = inputs_of<T>(v), out = outputs_of<T>(v);
    const T *from = (const T *)dy;
    for_each_place(in, dx, accumulate, [=] __device__(const Place &at) {
        Range rows = seen_by(v, at.row, v.oh), cols = seen_by(v, at.column, v.ow);
        float sum = 0;
        for (size_t oy = rows.begin; oy < rows.end; oy++)
            for (size_t ox = cols.begin; ox < cols.end; ox++)
                sum += widened(from[out.index(at, oy, ox)]);
        return sum / (float)(v.kernel * v.kernel);
    });
}

// ---- upsampling ------------------------------------------------------------------------------

// Every pixel becomes four.

template <typename T>
static void upsample2x(size_t n, size_t c, size_t h, size_t w, const Stored<T> *x, Stored<T> *y) {
    const Images<T> in = {n, c, h, w}, out = {n, c, 2 * h, 2 * w};
    const T *from = (const T *)x;
    for_each_place(out, y, false, [=] __device__(const Place &at) {
        return widened(from[in.index(at, at.row / 2, at.column / 2)]);
    });
}

#endif
