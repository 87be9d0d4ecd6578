/* layout.cu: the passes after a product (bias, relu), and the order of images.
 *
 * Images in float32 are [n, c, inner] (inner: the pixels of a plane); in 16 bits the channels of a
 * pixel lie side by side, [n, inner, c], as the tensor cores want them. Between the two there is
 * one pass, which turns and narrows or widens. Images of one pixel or one channel are not turned.
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
    size_t image, channel, pixel;    // of its first element
    unsigned channel_end, pixel_end; // its end within the image, relative to channel and pixel

    __device__ Tile(const ImageSizes &of, unsigned index) {
        size_t across = (of.inner + PIXELS - 1) / PIXELS, down = (of.c + CHANNELS - 1) / CHANNELS;
        pixel = index % across * PIXELS;
        channel = index / across % down * CHANNELS;
        image = index / across / down;
        channel_end = of.c - channel < CHANNELS ? (unsigned)(of.c - channel) : CHANNELS;
        pixel_end = of.inner - pixel < PIXELS ? (unsigned)(of.inner - pixel) : PIXELS;
    }
    __device__ bool holds(unsigned c, unsigned p) const { return c < channel_end && p < pixel_end; }
    // The index of an element with the channels first (ours), and with the channels last.
    __device__ size_t ours(const ImageSizes &of, unsigned c, unsigned p) const {
        return (image * of.c + channel + c) * of.inner + pixel + p;
    }
    __device__ size_t last(const ImageSizes &of, unsigned c, unsigned p) const {
        return (image * of.inner + pixel + p) * of.c + channel + c;
    }
};

// y (+)= round(x): x[n, c, inner], y channels last if TO_LAST, otherwise the reverse.
template <int CHANNELS, bool TO_LAST, typename From, typename To>
static __global__ void turn_kernel(ImageSizes of, Precision rounding, const From *x, To *y,
                                   bool accumulate) {
    const unsigned pixels = Tile<CHANNELS>::PIXELS;
    __shared__ float values[CHANNELS][pixels + 1];
    Tile<CHANNELS> tile(of, blockIdx.x);
    for (unsigned k = 0; k < EACH; k++) {
        unsigned i = threadIdx.x + k * CUDA_BLOCK;
        unsigned c = TO_LAST ? i / pixels : i % CHANNELS, p = TO_LAST ? i % pixels : i / CHANNELS;
        size_t at = TO_LAST ? tile.ours(of, c, p) : tile.last(of, c, p);
        if (tile.holds(c, p)) values[c][p] = rounded(rounding, widened(x[at]));
    }
    __syncthreads();
    for (unsigned k = 0; k < EACH; k++) {
        unsigned i = threadIdx.x + k * CUDA_BLOCK;
        unsigned c = TO_LAST ? i % CHANNELS : i / pixels, p = TO_LAST ? i / CHANNELS : i % pixels;
        size_t at = TO_LAST ? tile.last(of, c, p) : tile.ours(of, c, p);
        if (tile.holds(c, p)) put_half(&y[at], values[c][p], accumulate);
    }
}

// The same without turning.
template <typename To> struct Convert {
    Precision rounding;
    template <typename From> __device__ To operator()(From x) const {
        return narrowed<To>(rounded(rounding, widened(x)));
    }
    template <typename From> __device__ To operator()(To before, From x) const {
        return narrowed<To>(widened(before) + rounded(rounding, widened(x)));
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

template <bool TO_LAST, typename From, typename To>
static void convert(ImageSizes of, Precision rounding, const From *x, To *y, bool accumulate) {
    const CudaDevice *cuda = cuda_current();
    size_t count = of.n * of.c * of.inner;
    if (count == 0) return;
    if (keeps_its_order(of) && accumulate)
        cuda_map(Convert<To>{rounding}, count, y, (const To *)y, x);
    else if (keeps_its_order(of))
        cuda_map(Convert<To>{rounding}, count, y, x);
    else if (of.c <= 16)
        cuda_launch(cuda, turn_kernel<16, TO_LAST, From, To>, tiles_of(of, 16), of, rounding, x, y,
                    accumulate);
    else
        cuda_launch(cuda, turn_kernel<32, TO_LAST, From, To>, tiles_of(of, 32), of, rounding, x, y,
                    accumulate);
}

template <typename T>
static void narrow_images(ImageSizes of, const float *x, uint16_t *y, bool accumulate) {
    convert<true>(of, PRECISION_F32, x, (T *)y, accumulate);
}

void cuda_narrow_images(Precision precision, ImageSizes of, const float *x, uint16_t *y,
                        bool accumulate) {
    BY_PRECISION(precision, narrow_images, of, x, y, accumulate);
}

void cuda_widen_images(CudaStored as, ImageSizes of, const void *x, float *y, bool accumulate) {
    if (as.stored == PRECISION_F16)
        convert<false>(of, as.rounding, (const __half *)x, y, accumulate);
    else if (as.stored == PRECISION_BF16)
        convert<false>(of, as.rounding, (const __nv_bfloat16 *)x, y, accumulate);
    else
        convert<false>(of, as.rounding, (const float *)x, y, accumulate);
}

// ---- rows with a padding --------------------------------------------------------------------

// Calls convert(index in the matrix, index in the padded rows) for each element, and pad(index in
// the padded rows) for each element of padding.
template <typename Convert, typename Pad>
static void for_rows(HalfRows of, const Convert &convert, const Pad &pad) {
    cuda_run(of.n * of.pitch, [=] __device__() {
        Walk walk = walk_grid(of.n, of.pitch);
        FOR_EACH(i, of.n * of.pitch) {
            if (walk.column < of.columns)
                convert(walk.row * of.columns + walk.column, i);
            else
                pad(i);
            walk.next();
        }
    });
}

template <typename T>
static void narrow_rows(HalfRows of, const float *x, uint16_t *y, bool accumulate) {
    T *to = (T *)y;
    for_rows(
        of, [=] __device__(size_t k, size_t i) { put_half(&to[i], x[k], accumulate); },
        [=] __device__(size_t i) { narrow_to(&to[i], 0); });
}

void cuda_half_narrow_rows(Precision precision, HalfRows of, const float *x, uint16_t *y,
                           bool accumulate) {
    BY_PRECISION(precision, narrow_rows, of, x, y, accumulate);
}

template <typename T>
static void widen_rows(HalfRows of, const uint16_t *x, float *y, bool accumulate) {
    const T *from = (const T *)x;
    for_rows(
        of, [=] __device__(size_t k, size_t i) { put(&y[k], widened(from[i]), accumulate); },
        [] __device__(size_t) {});
}

void cuda_half_widen_rows(Precision precision, HalfRows of, const uint16_t *x, float *y,
                          bool accumulate) {
    BY_PRECISION(precision, widen_rows, of, x, y, accumulate);
}

// ---- the parameters of a linear layer, both in one launch -----------------------------------

// y (+)= x by the grid's threads; x or y may be NULL, then nothing is written.
template <typename From, typename To>
static __device__ void convert_part(const From *x, size_t count, To *y, bool accumulate) {
    const Convert<To> exact = {PRECISION_F32};
    size_t wides = wides_of(count, y, x);
    if (x && y && accumulate)
        map_elements(exact, wides, count, y, (const To *)y, x);
    else if (x && y)
        map_elements(exact, wides, count, y, x);
}

template <typename T>
static void narrow_linear(LinearShape s, const float *weight, const float *bias, uint16_t *narrow) {
    T *to = (T *)narrow, *bias_to = to + linear_narrow_bias(s);
    size_t count = s.out * s.in, out = s.out, padding = s.padding * s.in;
    cuda_run_blocks(cuda_grid(cuda_current(), count / WIDE), [=] __device__() {
        convert_part(weight, count, to, false);
        convert_part(bias, out, bias_to, false);
        FOR_EACH(i, padding) narrow_to(&to[count + i], 0);
    });
}

void cuda_half_narrow_linear(Precision precision, LinearShape s, const float *weight,
                             const float *bias, uint16_t *narrow) {
    if (s.out > 0) BY_PRECISION(precision, narrow_linear, s, weight, bias, narrow);
}

template <typename T>
static void widen_linear(LinearShape s, const uint16_t *narrow, const LinearGradient &to) {
    const T *from = (const T *)narrow, *bias_from = from + linear_narrow_bias(s);
    const LinearGradient places = to;
    size_t count = s.out * s.in, out = s.out;
    cuda_run_blocks(cuda_grid(cuda_current(), count / WIDE), [=] __device__() {
        convert_part(from, count, places.dweight, places.add_dweight);
        convert_part(bias_from, out, places.dbias, places.add_dbias);
    });
}

void cuda_widen_linear(Precision precision, LinearShape s, const uint16_t *narrow,
                       const LinearGradient *to) {
    if (s.out > 0) BY_PRECISION(precision, widen_linear, s, narrow, *to);
}
