/* conv.cu: convolution of images in float32 and in 16 bits, and the table of all windows.
 *
 * Where cuDNN has an algorithm, it convolves (dnn.c). Otherwise a convolution is a matrix product
 * with the columns ("im2col"): the taps that an output pixel sees, where a tap is one (channel,
 * row, column) of the window. Its gradients are the two other products of the same three matrices.
 * Images in 16 bits have their channels last, so their columns are transposed:
 *
 *   float32   y[k, pixels] = weight[k, taps] columns[taps, pixels], one product per image
 *   16 bits   y[images pixels, k] = columns[images pixels, taps] weight[k, taps]', one for all;
 *             accumulated in float32, rounded on storing
 *
 * The columns hold each input value kernel^2 times, so they are made for a few images at a time
 * (images_at_a_time).
 */
#include "common/device/cuda/window.cuh"

static size_t input_count(const Window *v) {
    return v->n * v->c * v->h * v->w;
}

static size_t output_count(const Window *v) {
    return v->n * v->k * v->oh * v->ow;
}

static size_t at_most(size_t count, size_t left) {
    return count < left ? count : left;
}

// ---- the workspace ---------------------------------------------------------------------------

struct Room {
    size_t images; // per product
    void *columns; // [images, taps, pixels], in 16 bits [images, pixels, taps] of at most float32
    // float32: dy transposed to [k, images, pixels]. 16 bits: a product, [images, pixels, k] or
    // [k, taps], in float32; cuDNN's weight gradient in 16 bits.
    void *product;
    void *library; // cuDNN's
    size_t bytes;
};

// For how many images there is room for columns, of float32 each.
static size_t images_at_a_time(const Window *v) {
    const size_t most = (size_t)64 << 20; // bytes
    size_t image = taps_of(v) * v->oh * v->ow * sizeof(float);
    size_t fit = image > 0 ? most / image : v->n;
    return fit < 1 ? 1 : at_most(fit, v->n);
}

// The room of one pass. Without a plan the pass works by columns.
static Room room_split(ConvolutionPass pass, Precision precision, const ConvolutionPlan *plan,
                       const Window *v, void *memory) {
    const bool halves = precision != PRECISION_F32;
    size_t pixels = v->oh * v->ow, taps = taps_of(v), weights = v->k * taps;
    Room room = {};
    if (plan) {
        size_t gradient = halves && pass == CONVOLUTION_WEIGHT_GRADIENT ? weights : 0;
        room.product = cuda_part(memory, &room.bytes, gradient * sizeof(uint16_t));
        room.library = cuda_part(memory, &room.bytes, cuda_convolution_workspace(plan));
        return room;
    }
    room.images = images_at_a_time(v);
    size_t product = room.images * pixels * v->k;
    if (halves && product < weights) product = weights;
    room.columns = cuda_part(memory, &room.bytes, room.images * pixels * taps * sizeof(float));
    room.product = cuda_part(memory, &room.bytes, product * sizeof(float));
    return room;
}

static void multiply(Precision precision, MatmulShape shape, const void *a, const void *b, void *c,
                     bool accumulate) {
    const CudaBatch one = {precision, 1, 0, 0, 0};
    cuda_matmul_batch(&one, shape, a, b, (float *)c, accumulate);
}

// y += bias, which may be NULL.
static void add_bias(Precision precision, const Window *v, const float *bias, void *y) {
    size_t inner = precision == PRECISION_F32 ? v->oh * v->ow : 1;
    const CudaFinish finish = {precision, bias, inner, v->k, false};
    if (bias) cuda_finish(&finish, y, output_count(v));
}

// ---- im2col in float32 -----------------------------------------------------------------------

// A 1x1 convolution at stride 1: the input is its own columns.
static bool is_plain(const Window *v) {
    return v->kernel == 1 && v->stride == 1 && v->pad == 0;
}

// Strides of the columns: from one image, and from one tap, to the next row of pixels.
struct Columns {
    size_t images, image_stride, tap_stride;
};

// One thread per output pixel and input channel writes that pixel's kernel^2 taps: the threads of a
// warp write to neighbouring pixels of the same tap.
static void make_columns(const Window *window, const Columns &shape, const float *x,
                         float *columns) {
    const Window v = *window;
    const Images<float> out = {shape.images, v.c, v.oh, v.ow};
    cuda_run(out.count(), [=] __device__() {
        size_t pixels = v.oh * v.ow, area = v.kernel * v.kernel;
        FOR_EACH(i, shape.images * v.c * pixels) {
            Place at = out.place(i);
            const float *from = x + at.plane * v.h * v.w;
            float *to = columns + out.image(at) * shape.image_stride +
                        out.channel(at) * area * shape.tap_stride + i % pixels;
            for (size_t ky = 0; ky < v.kernel; ky++)
                for (size_t kx = 0; kx < v.kernel; kx++, to += shape.tap_stride) {
                    size_t row = at.row * v.stride + ky - v.pad; // above the input: a huge number
                    size_t column = at.column * v.stride + kx - v.pad;
                    bool inside = row < v.h && column < v.w;
                    *to = inside ? from[row * v.w + column] : 0;
                }
        }
    });
}

// The reverse, to dx: every input pixel accumulates its entries of columns[images, taps, pixels].
static void gather_input_gradient(const Window *window, size_t images, const float *columns,
                                  float *dx, bool accumulate) {
    const Window v = *window;
    const Images<float> in = {images, v.c, v.h, v.w};
    for_each_place(in, dx, accumulate, [=] __device__(const Place &at) {
        size_t pixels = v.oh * v.ow, area = v.kernel * v.kernel;
        Range rows = seen_by(v, at.row, v.oh), cols = seen_by(v, at.column, v.ow);
        const float *from = columns + at.plane * area * pixels;
        float sum = 0;
        for (size_t oy = rows.begin; oy < rows.end; oy++)
            for (size_t ox = cols.begin; ox < cols.end; ox++) {
                size_t ky = at.row + v.pad - oy * v.stride, kx = at.column + v.pad - ox * v.stride;
                sum += from[(ky * v.kernel + kx) * pixels + oy * v.ow + ox];
            }
        return sum;
    });
}

// turned[k, images, pixels] = dy[images, k, pixels]
static void turn_images(const float *dy, float *turned, size_t images, size_t k, size_t pixels) {
    size_t count = images * k * pixels;
    cuda_run(count, [=] __device__() {
        FOR_EACH(i, count) {
            size_t image = i / pixels % images, channel = i / pixels / images;
            turned[i] = dy[(image * k + channel) * pixels + i % pixels];
        }
    });
}

static void columns_forward(Precision precision, const Window *v, const float *x,
                            const float *weight, const float *bias, float *y, const Room &room) {
    size_t pixels = v->oh * v->ow, taps = taps_of(v), image = v->c * v->h * v->w;
    for (size_t first = 0; first < v->n; first += room.images) {
        size_t images = at_most(room.images, v->n - first);
        const float *columns = x + first * image;
        if (!is_plain(v)) {
            make_columns(v, {images, taps * pixels, pixels}, columns, (float *)room.columns);
            columns = (const float *)room.columns;
        }
        CudaBatch batch = {precision, images, 0, taps * pixels, v->k * pixels};
        cuda_matmul_batch(&batch, MatmulShape{false, false, v->k, pixels, taps}, weight, columns,
                          y + first * v->k * pixels, false);
    }
    add_bias(precision, v, bias, y);
}

// columns' gradient [taps, pixels] = weight' dy, gathered to where the columns came from.
static void columns_input_gradient(Precision precision, const Window *v, const float *weight,
                                   const float *dy, float *dx, bool accumulate, const Room &room) {
    size_t pixels = v->oh * v->ow, taps = taps_of(v), image = v->c * v->h * v->w;
    bool plain = is_plain(v);
    for (size_t first = 0; first < v->n; first += room.images) {
        size_t images = at_most(room.images, v->n - first), in = v->k * pixels;
        float *to = plain ? dx + first * image : (float *)room.columns;
        CudaBatch batch = {precision, images, 0, in, taps * pixels};
        cuda_matmul_batch(&batch, MatmulShape{true, false, taps, pixels, v->k}, weight,
                          dy + first * in, to, plain && accumulate);
        if (!plain) gather_input_gradient(v, images, to, dx + first * image, accumulate);
    }
}

// dweight = dy columns', one product for all the images that there is space for: their pixels side
// by side are one long row.
static void columns_weight_gradient(Precision precision, const Window *v, const float *x,
                                    const float *dy, void *dweight, bool accumulate,
                                    const Room &room) {
    size_t pixels = v->oh * v->ow, taps = taps_of(v), image = v->c * v->h * v->w;
    for (size_t first = 0; first < v->n; first += room.images) {
        size_t images = at_most(room.images, v->n - first);
        make_columns(v, {images, pixels, images * pixels}, x + first * image,
                     (float *)room.columns);
        turn_images(dy + first * v->k * pixels, (float *)room.product, images, v->k, pixels);
        multiply(precision, MatmulShape{false, true, v->k, taps, images * pixels}, room.product,
                 room.columns, dweight, first > 0 || accumulate);
    }
}

// ---- im2col in 16 bits -----------------------------------------------------------------------

// One thread per tap of a pixel's column. Neighbouring threads read neighbouring channels.
template <typename T>
static void make_half_columns(const Window *window, size_t images, const uint16_t *x,
                              void *columns) {
    const Window v = *window;
    const Images<T> in = inputs_of<T>(v), out = {images, taps_of(&v), v.oh, v.ow};
    const T *from = (const T *)x;
    for_each_place(out, (uint16_t *)columns, false, [=] __device__(const Place &at) {
        size_t channel = at.channel % v.c, kx = at.channel / v.c % v.kernel;
        size_t ky = at.channel / v.c / v.kernel;
        size_t row = at.row * v.stride + ky - v.pad; // above the input: a huge number
        size_t column = at.column * v.stride + kx - v.pad;
        bool inside = row < v.h && column < v.w;
        return inside ? widened(from[in.index(at.plane, channel, row, column)]) : 0;
    });
}

// The reverse, to dx, from columns[images, pixels, taps] in float32.
template <typename T>
static void gather_half_input_gradient(const Window *window, size_t images, const float *columns,
                                       uint16_t *dx, bool accumulate) {
    const Window v = *window;
    const Images<T> in = {images, v.c, v.h, v.w}, out = {images, taps_of(&v), v.oh, v.ow};
    for_each_place(in, dx, accumulate, [=] __device__(const Place &at) {
        Range rows = seen_by(v, at.row, v.oh), cols = seen_by(v, at.column, v.ow);
        float sum = 0;
        for (size_t oy = rows.begin; oy < rows.end; oy++)
            for (size_t ox = cols.begin; ox < cols.end; ox++) {
                size_t ky = at.row + v.pad - oy * v.stride, kx = at.column + v.pad - ox * v.stride;
                size_t tap = (ky * v.kernel + kx) * v.c + at.channel;
                sum += columns[out.index(at.plane, tap, oy, ox)];
            }
        return sum;
    });
}

// y[i] = round(product[i] + round(bias[i % k])); bias may be NULL.
template <typename T>
static void finish_product(Precision rounding, const float *product, const float *bias, uint16_t *y,
                           size_t k, size_t count) {
    T *to = (T *)y;
    cuda_run(count, [=] __device__() {
        FOR_EACH(i, count)
        narrow_to(&to[i], product[i] + (bias ? rounded(rounding, bias[i % k]) : 0));
    });
}

static void columns_forward(Precision precision, const Window *v, const uint16_t *x,
                            const uint16_t *weight, const float *bias, uint16_t *y,
                            const Room &room) {
    size_t pixels = v->oh * v->ow, taps = taps_of(v), image = v->h * v->w * v->c;
    for (size_t first = 0; first < v->n; first += room.images) {
        size_t images = at_most(room.images, v->n - first), count = images * pixels * v->k;
        BY_PRECISION(precision, make_half_columns, v, images, x + first * image, room.columns);
        multiply(precision, MatmulShape{false, true, images * pixels, v->k, taps}, room.columns,
                 weight, room.product, false);
        BY_PRECISION(precision, finish_product, precision, (const float *)room.product, bias,
                     y + first * pixels * v->k, v->k, count);
    }
}

static void columns_input_gradient(Precision precision, const Window *v, const uint16_t *weight,
                                   const uint16_t *dy, uint16_t *dx, bool accumulate,
                                   const Room &room) {
    size_t pixels = v->oh * v->ow, image = v->h * v->w * v->c;
    for (size_t first = 0; first < v->n; first += room.images) {
        size_t images = at_most(room.images, v->n - first);
        multiply(precision, MatmulShape{false, false, images * pixels, taps_of(v), v->k},
                 dy + first * pixels * v->k, weight, room.columns, false);
        BY_PRECISION(precision, gather_half_input_gradient, v, images, (const float *)room.columns,
                     dx + first * image, accumulate);
    }
}

static void columns_weight_gradient(Precision precision, const Window *v, const uint16_t *x,
                                    const uint16_t *dy, void *dweight, bool accumulate,
                                    const Room &room) {
    size_t pixels = v->oh * v->ow, image = v->h * v->w * v->c;
    for (size_t first = 0; first < v->n; first += room.images) {
        size_t images = at_most(room.images, v->n - first);
        BY_PRECISION(precision, make_half_columns, v, images, x + first * image, room.columns);
        multiply(precision, MatmulShape{true, false, v->k, taps_of(v), images * pixels},
                 dy + first * pixels * v->k, room.columns, dweight, first > 0 || accumulate);
    }
}

// ---- convolution: S is float or uint16_t --------------------------------------------------------

template <typename S> static void check_stored(Precision precision) {
    if (sizeof(S) == sizeof(float))
        cuda_check_float32(precision, "a convolution of float32 images");
}

template <typename S> static size_t conv2d_workspace(Precision precision, const Window *v) {
    check_stored<S>(precision);
    size_t most = 0;
    for (int i = CONVOLUTION_FORWARD; i <= CONVOLUTION_WEIGHT_GRADIENT; i++) {
        ConvolutionPass pass = (ConvolutionPass)i;
        const ConvolutionPlan *plan = cuda_convolution_plan(pass, precision, v);
        size_t bytes = room_split(pass, precision, plan, v, NULL).bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

template <typename S>
static void conv2d(Compute how, const Window *v, const S *x, const S *weight, const float *bias,
                   S *y) {
    check_stored<S>(how.precision);
    size_t count = output_count(v);
    if (count == 0) return;
    const ConvolutionPlan *plan = cuda_convolution_plan(CONVOLUTION_FORWARD, how.precision, v);
    Room room = room_split(CONVOLUTION_FORWARD, how.precision, plan, v, how.workspace);
    if (!plan && taps_of(v) > 0) {
        columns_forward(how.precision, v, x, weight, bias, y, room);
        return;
    }
    if (plan)
        cuda_convolution_run(plan, x, weight, y, false, room.library);
    else
        cuda_clear(y, count * sizeof *y);
    add_bias(how.precision, v, bias, y);
}

template <typename S>
static void conv2d_input_gradient(Compute how, const Window *v, const S *weight, const S *dy, S *dx,
                                  bool accumulate) {
    check_stored<S>(how.precision);
    size_t count = input_count(v);
    if (count == 0) return;
    const ConvolutionPlan *plan =
        cuda_convolution_plan(CONVOLUTION_INPUT_GRADIENT, how.precision, v);
    Room room = room_split(CONVOLUTION_INPUT_GRADIENT, how.precision, plan, v, how.workspace);
    if (output_count(v) == 0)
        cuda_clear(dx, accumulate ? 0 : count * sizeof *dx);
    else if (plan)
        cuda_convolution_run(plan, weight, dy, dx, accumulate, room.library);
    else
        columns_input_gradient(how.precision, v, weight, dy, dx, accumulate, room);
}

// In 16 bits the gradient passes through room.product, because it is rounded before the addition.
template <typename S>
static void conv2d_weight_gradient(Compute how, const Window *v, const S *x, const S *dy,
                                   float *dweight, bool accumulate) {
    check_stored<S>(how.precision);
    const bool halves = how.precision != PRECISION_F32;
    size_t count = v->k * taps_of(v);
    if (count == 0) return;
    const ConvolutionPlan *plan =
        cuda_convolution_plan(CONVOLUTION_WEIGHT_GRADIENT, how.precision, v);
    Room room = room_split(CONVOLUTION_WEIGHT_GRADIENT, how.precision, plan, v, how.workspace);
    if (output_count(v) == 0) {
        cuda_clear(dweight, accumulate ? 0 : count * sizeof *dweight);
        return;
    }
    void *to = halves ? room.product : dweight;
    if (plan)
        cuda_convolution_run(plan, x, dy, to, accumulate && !halves, room.library);
    else
        columns_weight_gradient(how.precision, v, x, dy, to, accumulate && !halves, room);
    CudaStored as = {plan ? how.precision : PRECISION_F32, how.precision};
    ImageSizes of = {v->k, v->c, v->kernel * v->kernel};
    if (halves) cuda_widen_images(as, of, room.product, dweight, accumulate);
}

static void cuda_conv2d_bias_gradient(const Window *v, const float *dy, float *dbias,
                                      bool accumulate) {
    cuda_sum_channels(dy, dbias, accumulate, v->n, v->k, v->oh * v->ow);
}

extern "C" const ConvolutionKernels cuda_convolution = {
    .conv2d_workspace = conv2d_workspace<float>,
    .conv2d = conv2d<float>,
    .conv2d_input_gradient = conv2d_input_gradient<float>,
    .conv2d_weight_gradient = conv2d_weight_gradient<float>,
    .conv2d_bias_gradient = cuda_conv2d_bias_gradient,
    .shortcut = shortcut<float>,
    .shortcut_gradient = shortcut_gradient<float>,
    .max_pool = max_pool<float>,
    .max_pool_gradient = max_pool_gradient<float>,
    .avg_pool = avg_pool<float>,
    .avg_pool_gradient = avg_pool_gradient<float>,
};

// ---- the entries of HalfKernels ----------------------------------------------------------------

size_t cuda_half_conv2d_workspace(Precision precision, const Window *v) {
    return conv2d_workspace<uint16_t>(precision, v);
}

void cuda_half_conv2d(Compute how, const Window *v, const uint16_t *x, const uint16_t *weight,
                      const float *bias, uint16_t *y) {
    conv2d(how, v, x, weight, bias, y);
}

void cuda_half_conv2d_input_gradient(Compute how, const Window *v, const uint16_t *weight,
                                     const uint16_t *dy, uint16_t *dx, bool accumulate) {
    conv2d_input_gradient(how, v, weight, dy, dx, accumulate);
}

void cuda_half_conv2d_weight_gradient(Compute how, const Window *v, const uint16_t *x,
                                      const uint16_t *dy, float *dweight, bool accumulate) {
    conv2d_weight_gradient(how, v, x, dy, dweight, accumulate);
}

void cuda_half_conv2d_bias_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                    float *dbias, bool accumulate) {
    cuda_half_sum_channels(CudaStored{precision, precision}, dy, dbias, accumulate,
                           ImageSizes{v->n, v->k, v->oh * v->ow});
}
