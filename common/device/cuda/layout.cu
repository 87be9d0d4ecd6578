/* layout.cu: what becomes of a product (bias, relu), and the order of images.
 *
 * Images in float32 are [n, c, inner] (inner: the pixels of a plane); in 16 bits the channels of a
 * pixel lie side by side, [n, inner, c], as the tensor cores want them. Between the two there is
 * one pass, which turns and narrows or widens. What has one pixel or one channel is not turned.
 *
 * A block turns a tile: it reads along one order, leaves it in shared memory, and writes along the
 * other, so that neighbouring threads touch neighbouring memory both times. Rows of the tile are
 * one element longer than they need to be, or a column's elements would all lie in the same bank.
 */
#include "common/device/cuda/half.cuh"
#include "common/device/cuda/map.cuh"

extern "C" {
#include "common/device/cuda/kernels.h"
}

// ---- the end of a product -------------------------------------------------------------------

template <int WIDTH, typename T>
static __global__ void finish_product(CudaFinish f, T *y, size_t count) {
    FOR_EACH(i, count / WIDTH) {
        Vector<T, WIDTH> at = vector_load<WIDTH>(y, i);
        for (int k = 0; k < WIDTH; k++) {
            float value = widened(at.at[k]);
            if (f.bias)
                value += rounded(f.stored, f.bias[(i * WIDTH + (size_t)k) / f.inner % f.channels]);
            if (f.relu && value < 0) value = 0; // a NaN stays one
            narrow_to(&at.at[k], value);
        }
        vector_store(y, i, at);
    }
}

template <typename T> static void finish(const CudaFinish &f, T *y, size_t count) {
    const CudaDevice *cuda = cuda_current();
    if (count % WIDE == 0 && is_wide(y))
        cuda_launch(cuda, finish_product<WIDE, T>, cuda_grid(cuda, count / WIDE), f, y, count);
    else
        cuda_launch(cuda, finish_product<1, T>, cuda_grid(cuda, count), f, y, count);
}

void cuda_finish(const CudaFinish *f, void *y, size_t count) {
    if (f->stored == PRECISION_BF16)
        finish(*f, (__nv_bfloat16 *)y, count);
    else if (f->stored == PRECISION_F16)
        finish(*f, (__half *)y, count);
    else
        finish(*f, (float *)y, count);
}

// ---- the order of images --------------------------------------------------------------------

enum { EACH = 8, TILE = EACH * CUDA_BLOCK }; // elements of a thread, and of a tile

// CHANNELS x TILE / CHANNELS pixels: which of x[n, c, inner] a block's tile holds.
template <int CHANNELS> struct Tile {
    static const unsigned PIXELS = TILE / CHANNELS;
    size_t image, channel, pixel;    // where it begins
    unsigned channel_end, pixel_end; // what of it there is, counted from there

    __device__ Tile(const ImageSizes &of, unsigned index) {
        size_t across = (of.inner + PIXELS - 1) / PIXELS, down = (of.c + CHANNELS - 1) / CHANNELS;
        pixel = index % across * PIXELS;
        channel = index / across % down * CHANNELS;
        image = index / across / down;
        channel_end = of.c - channel < CHANNELS ? (unsigned)(of.c - channel) : CHANNELS;
        pixel_end = of.inner - pixel < PIXELS ? (unsigned)(of.inner - pixel) : PIXELS;
    }
    __device__ bool holds(unsigned c, unsigned p) const { return c < channel_end && p < pixel_end; }
    // Where its element lies in our order, and with the channels last.
    __device__ size_t ours(const ImageSizes &of, unsigned c, unsigned p) const {
        return (image * of.c + channel + c) * of.inner + pixel + p;
    }
    __device__ size_t last(const ImageSizes &of, unsigned c, unsigned p) const {
        return (image * of.inner + pixel + p) * of.c + channel + c;
    }
};

// To channels last and 16 bits.
template <int CHANNELS, typename T>
static __global__ void put_channels_last(ImageSizes of, const float *x, T *y, bool accumulate) {
    const unsigned pixels = Tile<CHANNELS>::PIXELS;
    __shared__ float values[CHANNELS][pixels + 1];
    Tile<CHANNELS> tile(of, blockIdx.x);
    for (unsigned k = 0; k < EACH; k++) {
        unsigned i = threadIdx.x + k * CUDA_BLOCK, c = i / pixels, p = i % pixels;
        if (tile.holds(c, p)) values[c][p] = x[tile.ours(of, c, p)];
    }
    __syncthreads();
    for (unsigned k = 0; k < EACH; k++) {
        unsigned i = threadIdx.x + k * CUDA_BLOCK, c = i % CHANNELS, p = i / CHANNELS;
        if (!tile.holds(c, p)) continue;
        T *place = &y[tile.last(of, c, p)];
        narrow_to(place, values[c][p] + (accumulate ? widened(*place) : 0));
    }
}

// And back.
template <int CHANNELS, typename T>
static __global__ void take_channels_last(ImageSizes of, Precision rounding, const T *x, float *y,
                                          bool accumulate) {
    const unsigned pixels = Tile<CHANNELS>::PIXELS;
    __shared__ float values[CHANNELS][pixels + 1];
    Tile<CHANNELS> tile(of, blockIdx.x);
    for (unsigned k = 0; k < EACH; k++) {
        unsigned i = threadIdx.x + k * CUDA_BLOCK, c = i % CHANNELS, p = i / CHANNELS;
        if (tile.holds(c, p)) values[c][p] = rounded(rounding, widened(x[tile.last(of, c, p)]));
    }
    __syncthreads();
    for (unsigned k = 0; k < EACH; k++) {
        unsigned i = threadIdx.x + k * CUDA_BLOCK, c = i / pixels, p = i % pixels;
        if (tile.holds(c, p)) put(&y[tile.ours(of, c, p)], values[c][p], accumulate);
    }
}

// The same without turning.
template <typename T> struct Narrow {
    __device__ T operator()(float x) const {
        T y;
        narrow_to(&y, x);
        return y;
    }
    __device__ T operator()(T before, float x) const { return (*this)(x + widened(before)); }
};

struct Widen {
    Precision rounding;
    template <typename T> __device__ float operator()(T x) const {
        return rounded(rounding, widened(x));
    }
    template <typename T> __device__ float operator()(float before, T x) const {
        return before + (*this)(x);
    }
};

static bool keeps_its_order(const ImageSizes &of) {
    return of.c == 1 || of.inner == 1;
}

// One block per tile.
static unsigned tiles_of(const ImageSizes &of, size_t channels) {
    size_t pixels = TILE / channels, across = (of.inner + pixels - 1) / pixels;
    size_t count = of.n * ((of.c + channels - 1) / channels) * across;
    CHECK(count <= INT32_MAX, "%zu tiles of a tensor", count);
    return (unsigned)count;
}

template <typename T>
static void narrow(ImageSizes of, const float *x, uint16_t *y, bool accumulate) {
    const CudaDevice *cuda = cuda_current();
    size_t count = of.n * of.c * of.inner;
    if (keeps_its_order(of) && accumulate)
        cuda_map(Narrow<T>{}, count, (T *)y, (const T *)y, x);
    else if (keeps_its_order(of))
        cuda_map(Narrow<T>{}, count, (T *)y, x);
    else if (of.c <= 16)
        cuda_launch(cuda, put_channels_last<16, T>, tiles_of(of, 16), of, x, (T *)y, accumulate);
    else
        cuda_launch(cuda, put_channels_last<32, T>, tiles_of(of, 32), of, x, (T *)y, accumulate);
}

void cuda_narrow_images(Precision precision, ImageSizes of, const float *x, uint16_t *y,
                        bool accumulate) {
    if (of.n * of.c * of.inner == 0) return;
    if (precision == PRECISION_F16)
        narrow<__half>(of, x, y, accumulate);
    else
        narrow<__nv_bfloat16>(of, x, y, accumulate);
}

template <typename T>
static void widen(ImageSizes of, Precision rounding, const void *x, float *y, bool accumulate) {
    const CudaDevice *cuda = cuda_current();
    size_t count = of.n * of.c * of.inner;
    if (keeps_its_order(of) && accumulate)
        cuda_map(Widen{rounding}, count, y, (const float *)y, (const T *)x);
    else if (keeps_its_order(of))
        cuda_map(Widen{rounding}, count, y, (const T *)x);
    else if (of.c <= 16)
        cuda_launch(cuda, take_channels_last<16, T>, tiles_of(of, 16), of, rounding, (const T *)x,
                    y, accumulate);
    else
        cuda_launch(cuda, take_channels_last<32, T>, tiles_of(of, 32), of, rounding, (const T *)x,
                    y, accumulate);
}

void cuda_widen_images(CudaStored as, ImageSizes of, const void *x, float *y, bool accumulate) {
    if (of.n * of.c * of.inner == 0) return;
    if (as.stored == PRECISION_F16)
        widen<__half>(of, as.rounding, x, y, accumulate);
    else if (as.stored == PRECISION_BF16)
        widen<__nv_bfloat16>(of, as.rounding, x, y, accumulate);
    else
        widen<float>(of, as.rounding, x, y, accumulate);
}

// ---- the parameters of a linear layer --------------------------------------------------------

template <typename T>
static __global__ void narrow_linear_kernel(LinearShape s, const float *weight, const float *bias,
                                            T *narrow, size_t bias_at) {
    size_t count = s.out * s.in;
    T *place = narrow + bias_at;
    map_elements(Narrow<T>{}, wides_of(count, narrow, weight), count, narrow, weight);
    if (bias) map_elements(Narrow<T>{}, wides_of(s.out, place, bias), s.out, place, bias);
}

void cuda_half_narrow_linear(Precision precision, LinearShape s, const float *weight,
                             const float *bias, uint16_t *narrow) {
    const CudaDevice *cuda = cuda_current();
    unsigned grid = cuda_grid(cuda, s.out * s.in / WIDE);
    size_t bias_at = linear_narrow_bias(s);
    if (s.out == 0) return;
    if (precision == PRECISION_F16)
        cuda_launch(cuda, narrow_linear_kernel<__half>, grid, s, weight, bias, (__half *)narrow,
                    bias_at);
    else
        cuda_launch(cuda, narrow_linear_kernel<__nv_bfloat16>, grid, s, weight, bias,
                    (__nv_bfloat16 *)narrow, bias_at);
}

template <typename T>
static __device__ void widen_part(const T *x, size_t count, float *y, bool accumulate) {
    const Widen exact = {PRECISION_F32};
    size_t wides = wides_of(count, y, x);
    if (y && accumulate)
        map_elements(exact, wides, count, y, (const float *)y, x);
    else if (y)
        map_elements(exact, wides, count, y, x);
}

template <typename T>
static __global__ void widen_linear_kernel(LinearShape s, const T *narrow, size_t bias_at,
                                           LinearGradient to) {
    widen_part(narrow, s.out * s.in, to.dweight, to.add_dweight);
    widen_part(narrow + bias_at, s.out, to.dbias, to.add_dbias);
}

void cuda_widen_linear(Precision precision, LinearShape s, const uint16_t *narrow,
                       const LinearGradient *to) {
    const CudaDevice *cuda = cuda_current();
    unsigned grid = cuda_grid(cuda, s.out * s.in / WIDE);
    size_t bias_at = linear_narrow_bias(s);
    if (s.out == 0) return;
    if (precision == PRECISION_F16)
        cuda_launch(cuda, widen_linear_kernel<__half>, grid, s, (const __half *)narrow, bias_at,
                    *to);
    else
        cuda_launch(cuda, widen_linear_kernel<__nv_bfloat16>, grid, s,
                    (const __nv_bfloat16 *)narrow, bias_at, *to);
}
