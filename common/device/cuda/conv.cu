/* conv.cu: the GPUs' sliding windows over float32 images: convolution, shortcut, pooling.
 *
 * Where there is cuDNN and it knows a way, it convolves (dnn.c). Otherwise a
 * convolution is a matrix product, once every output pixel's window of the input has been written
 * out as a column ("im2col"): y[k, pixels] = weight[k, taps] columns[taps, pixels] for each image,
 * where a tap is one (channel, row, column) of the window. Its gradients are the two other products
 * of the same three matrices. The columns hold each input value kernel^2 times, so they are made
 * for a few images at a time (images_at_a_time).
 *
 * A gradient is gathered, never scattered: one thread per input pixel adds up what all the windows
 * that see it have for it, in a fixed order. So windows may overlap, and nothing is atomic.
 */
#include "common/device/cuda/window.cuh"

// ---- windows ---------------------------------------------------------------------------------

// Element `index` of x[n, c, h, w] or of y[n, k, oh, ow].
struct Pixel {
    size_t plane, row, column; // plane: of all images' channels
};

static __device__ Pixel pixel_of(size_t index, size_t h, size_t w) {
    return {index / w / h, index / w % h, index % w};
}

// ---- im2col ----------------------------------------------------------------------------------

// A 1x1 convolution at stride 1: the input is its own columns.
static bool is_plain(const Window *v) {
    return v->kernel == 1 && v->stride == 1 && v->pad == 0;
}

// The im2col workspace's layout, for any of the three passes.
struct Workspace {
    size_t images;  // per product
    float *dy;      // transposed to [k, images, pixels]
    float *columns; // [images, taps, pixels], or transposed to [taps, images, pixels]
    size_t bytes;
};

static float *workspace_take(Workspace *space, char *memory, size_t count) {
    char *place = memory ? memory + space->bytes : NULL;
    size_t bytes = count * sizeof(float);
    space->bytes += (bytes + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
    return (float *)place;
}

static Workspace workspace_split(const Window *v, void *memory) {
    size_t pixels = v->oh * v->ow, taps = taps_of(v);
    Workspace space = {};
    space.images = images_at_a_time(v);
    space.dy = workspace_take(&space, (char *)memory, space.images * v->k * pixels);
    space.columns = workspace_take(&space, (char *)memory, space.images * taps * pixels);
    return space;
}

// Where a tap's row of pixels of an image lies in the columns: image_stride and tap_stride apart.
struct Columns {
    size_t images, image_stride, tap_stride;
};

// One thread per output pixel and input channel writes that pixel's kernel^2 taps: the threads of a
// warp write to neighbouring pixels of the same tap.
static __global__ void gather_columns(Window v, Columns shape, const float *x, float *columns) {
    size_t plane = v.oh * v.ow, area = v.kernel * v.kernel;
    FOR_EACH(i, shape.images * v.c * plane) {
        Pixel at = pixel_of(i, v.oh, v.ow);
        const float *from = x + at.plane * v.h * v.w;
        float *to = columns + at.plane / v.c * shape.image_stride +
                    at.plane % v.c * area * shape.tap_stride + i % plane;
        for (size_t ky = 0; ky < v.kernel; ky++)
            for (size_t kx = 0; kx < v.kernel; kx++, to += shape.tap_stride) {
                size_t row = at.row * v.stride + ky - v.pad; // above the input: a huge number
                size_t column = at.column * v.stride + kx - v.pad;
                bool inside = row < v.h && column < v.w;
                *to = inside ? from[row * v.w + column] : 0;
            }
    }
}

// The reverse, and to dx: every input pixel adds up what the windows that see it hold for it in
// columns[images, taps, pixels].
static __global__ void gather_input_gradient(Window v, size_t images, const float *columns,
                                             float *dx, bool accumulate) {
    size_t pixels = v.oh * v.ow, area = v.kernel * v.kernel;
    FOR_EACH(i, images * v.c * v.h * v.w) {
        Pixel at = pixel_of(i, v.h, v.w);
        Range rows = seen_by(v, at.row, v.oh), cols = seen_by(v, at.column, v.ow);
        const float *from = columns + at.plane * area * pixels;
        float sum = 0;
        for (size_t oy = rows.begin; oy < rows.end; oy++)
            for (size_t ox = cols.begin; ox < cols.end; ox++) {
                size_t ky = at.row + v.pad - oy * v.stride, kx = at.column + v.pad - ox * v.stride;
                sum += from[(ky * v.kernel + kx) * pixels + oy * v.ow + ox];
            }
        put(&dx[i], sum, accumulate);
    }
}

// turned[k, images, pixels] = dy[images, k, pixels]
static __global__ void turn_images(const float *dy, float *turned, size_t images, size_t k,
                                   size_t pixels) {
    FOR_EACH(i, images * k * pixels) {
        size_t image = i / pixels % images, channel = i / pixels / images;
        turned[i] = dy[(image * k + channel) * pixels + i % pixels];
    }
}

static void make_columns(const Window *v, const Columns &shape, const float *x, float *columns) {
    const CudaDevice *cuda = cuda_current();
    cuda_launch(cuda, gather_columns, cuda_grid(cuda, shape.images * v->c * v->oh * v->ow), *v,
                shape, x, columns);
}

static void columns_forward(const Window *v, const float *x, const float *weight, float *y,
                            void *workspace) {
    Workspace space = workspace_split(v, workspace);
    size_t pixels = v->oh * v->ow, taps = taps_of(v), image = v->c * v->h * v->w;
    for (size_t first = 0; first < v->n; first += space.images) {
        size_t images = at_most(space.images, v->n - first);
        const float *columns = x + first * image;
        if (!is_plain(v)) {
            make_columns(v, {images, taps * pixels, pixels}, x + first * image, space.columns);
            columns = space.columns;
        }
        CudaBatch batch = {PRECISION_F32, images, 0, taps * pixels, v->k * pixels};
        cuda_matmul_batch(&batch, MatmulShape{false, false, v->k, pixels, taps}, weight, columns,
                          y + first * v->k * pixels, false);
    }
}

// columns' gradient [taps, pixels] = weight^T dy, gathered to where the columns came from.
static void columns_input_gradient(const Window *v, const float *weight, const float *dy, float *dx,
                                   bool accumulate, void *workspace) {
    const CudaDevice *cuda = cuda_current();
    Workspace space = workspace_split(v, workspace);
    size_t pixels = v->oh * v->ow, taps = taps_of(v), image = v->c * v->h * v->w;
    bool plain = is_plain(v);
    for (size_t first = 0; first < v->n; first += space.images) {
        size_t images = at_most(space.images, v->n - first), in = v->k * pixels;
        float *to = plain ? dx + first * image : space.columns;
        CudaBatch batch = {PRECISION_F32, images, 0, in, taps * pixels};
        cuda_matmul_batch(&batch, MatmulShape{true, false, taps, pixels, v->k}, weight,
                          dy + first * in, to, plain && accumulate);
        if (!plain)
            cuda_launch(cuda, gather_input_gradient, cuda_grid(cuda, images * image), *v, images,
                        to, dx + first * image, accumulate);
    }
}

// dweight = dy columns^T, one product for all the images that there is space for: their pixels side
// by side are one long row.
static void columns_weight_gradient(const Window *v, const float *x, const float *dy,
                                    float *dweight, bool accumulate, void *workspace) {
    const CudaDevice *cuda = cuda_current();
    Workspace space = workspace_split(v, workspace);
    size_t pixels = v->oh * v->ow, taps = taps_of(v), image = v->c * v->h * v->w;
    for (size_t first = 0; first < v->n; first += space.images) {
        size_t images = at_most(space.images, v->n - first), count = images * v->k * pixels;
        make_columns(v, {images, pixels, images * pixels}, x + first * image, space.columns);
        cuda_launch(cuda, turn_images, cuda_grid(cuda, count), dy + first * v->k * pixels, space.dy,
                    images, v->k, pixels);
        CudaBatch one = {PRECISION_F32, 1, 0, 0, 0};
        cuda_matmul_batch(&one, MatmulShape{false, true, v->k, taps, images * pixels}, space.dy,
                          space.columns, dweight, first > 0 || accumulate);
    }
}

// ---- convolution -----------------------------------------------------------------------------

// In 16 bits images are stored so, too: half_conv.cu.
static void check_float32(Precision precision) {
    CHECK(precision == PRECISION_F32, "a convolution of float32 images in precision %d",
          (int)precision);
}

static size_t cuda_conv2d_workspace(Precision precision, const Window *v) {
    check_float32(precision);
    size_t most = 0;
    for (int pass = CONVOLUTION_FORWARD; pass <= CONVOLUTION_WEIGHT_GRADIENT; pass++) {
        const ConvolutionPlan *plan = cuda_convolution_plan((ConvolutionPass)pass, precision, v);
        size_t bytes = plan ? cuda_convolution_workspace(plan) : workspace_split(v, NULL).bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

static void clear(float *x, size_t count, bool accumulate) {
    if (count > 0 && !accumulate)
        CUDA(cudaMemsetAsync(x, 0, count * sizeof *x, cuda_current()->compute));
}

static void cuda_conv2d(Compute how, const Window *v, const float *x, const float *weight,
                        const float *bias, float *y) {
    check_float32(how.precision);
    size_t count = output_count(v);
    if (count == 0) return;
    const ConvolutionPlan *plan = cuda_convolution_plan(CONVOLUTION_FORWARD, PRECISION_F32, v);
    if (plan)
        cuda_convolution_run(plan, x, weight, y, false, how.workspace);
    else if (taps_of(v) == 0)
        clear(y, count, false);
    else
        columns_forward(v, x, weight, y, how.workspace);
    CudaFinish finish = {};
    finish.bias = bias;
    finish.inner = v->oh * v->ow;
    finish.channels = v->k;
    if (bias) cuda_finish(&finish, y, count);
}

static void cuda_conv2d_input_gradient(Compute how, const Window *v, const float *weight,
                                       const float *dy, float *dx, bool accumulate) {
    check_float32(how.precision);
    size_t count = input_count(v);
    if (count == 0) return;
    const ConvolutionPlan *plan =
        cuda_convolution_plan(CONVOLUTION_INPUT_GRADIENT, PRECISION_F32, v);
    if (output_count(v) == 0)
        clear(dx, count, accumulate);
    else if (plan)
        cuda_convolution_run(plan, weight, dy, dx, accumulate, how.workspace);
    else
        columns_input_gradient(v, weight, dy, dx, accumulate, how.workspace);
}

static void cuda_conv2d_weight_gradient(Compute how, const Window *v, const float *x,
                                        const float *dy, float *dweight, bool accumulate) {
    check_float32(how.precision);
    size_t count = v->k * taps_of(v);
    if (count == 0) return;
    const ConvolutionPlan *plan =
        cuda_convolution_plan(CONVOLUTION_WEIGHT_GRADIENT, PRECISION_F32, v);
    if (output_count(v) == 0)
        clear(dweight, count, accumulate);
    else if (plan)
        cuda_convolution_run(plan, x, dy, dweight, accumulate, how.workspace);
    else
        columns_weight_gradient(v, x, dy, dweight, accumulate, how.workspace);
}

static void cuda_conv2d_bias_gradient(const Window *v, const float *dy, float *dbias,
                                      bool accumulate) {
    cuda_sum_channels(dy, dbias, accumulate, v->n, v->k, v->oh * v->ow);
}

// ---- shortcut --------------------------------------------------------------------------------

static __global__ void take_shortcut(Window v, const float *x, float *y, size_t count) {
    size_t before = (v.k - v.c) / 2; // channels of zeros
    FOR_EACH(i, count) {
        Pixel at = pixel_of(i, v.oh, v.ow);
        size_t image = at.plane / v.k, c = at.plane % v.k - before; // before the first: huge
        size_t from = ((image * v.c + c) * v.h + at.row * v.stride) * v.w + at.column * v.stride;
        y[i] = c < v.c ? x[from] : 0;
    }
}

static void cuda_shortcut(const Window *v, const float *x, float *y) {
    const CudaDevice *cuda = cuda_current();
    cuda_launch(cuda, take_shortcut, cuda_grid(cuda, output_count(v)), *v, x, y, output_count(v));
}

static __global__ void return_shortcut(Window v, const float *dy, float *dx, bool accumulate,
                                       size_t count) {
    size_t before = (v.k - v.c) / 2;
    FOR_EACH(i, count) {
        Pixel at = pixel_of(i, v.h, v.w);
        size_t image = at.plane / v.c, k = at.plane % v.c + before;
        size_t row = at.row / v.stride, column = at.column / v.stride;
        bool taken =
            at.row % v.stride == 0 && at.column % v.stride == 0 && row < v.oh && column < v.ow;
        put(&dx[i], taken ? dy[((image * v.k + k) * v.oh + row) * v.ow + column] : 0, accumulate);
    }
}

static void cuda_shortcut_gradient(const Window *v, const float *dy, float *dx, bool accumulate) {
    const CudaDevice *cuda = cuda_current();
    size_t count = input_count(v);
    cuda_launch(cuda, return_shortcut, cuda_grid(cuda, count), *v, dy, dx, accumulate, count);
}

// ---- pooling ---------------------------------------------------------------------------------

static __global__ void pool_max(Window v, const float *x, float *y, int32_t *chosen, size_t count) {
    FOR_EACH(i, count) {
        Pixel at = pixel_of(i, v.oh, v.ow);
        Range rows = sight(v, at.row, v.h), cols = sight(v, at.column, v.w);
        const float *plane = x + at.plane * v.h * v.w;
        size_t best = rows.begin * v.w + cols.begin;
        for (size_t iy = rows.begin; iy < rows.end; iy++)
            for (size_t ix = cols.begin; ix < cols.end; ix++)
                if (beats(plane[iy * v.w + ix], plane[best])) best = iy * v.w + ix;
        y[i] = plane[best];
        chosen[i] = (int32_t)best;
    }
}

static void cuda_max_pool(const Window *v, const float *x, float *y, int32_t *chosen) {
    CHECK(v->pad < v->kernel, "kernel %zu, pad %zu: a window of padding only", v->kernel, v->pad);
    const CudaDevice *cuda = cuda_current();
    size_t count = output_count(v);
    cuda_launch(cuda, pool_max, cuda_grid(cuda, count), *v, x, y, chosen, count);
}

static __global__ void pool_max_gradient(Window v, const int32_t *chosen, const float *dy,
                                         float *dx, bool accumulate, size_t count) {
    FOR_EACH(i, count) {
        Pixel at = pixel_of(i, v.h, v.w);
        Range rows = seen_by(v, at.row, v.oh), cols = seen_by(v, at.column, v.ow);
        int32_t pixel = (int32_t)(at.row * v.w + at.column);
        float sum = accumulate ? dx[i] : 0; // in the order of outputs, as the reference
        for (size_t oy = rows.begin; oy < rows.end; oy++)
            for (size_t ox = cols.begin; ox < cols.end; ox++) {
                size_t output = (at.plane * v.oh + oy) * v.ow + ox;
                if (chosen[output] == pixel) sum += dy[output];
            }
        dx[i] = sum;
    }
}

static void cuda_max_pool_gradient(const Window *v, const int32_t *chosen, const float *dy,
                                   float *dx, bool accumulate) {
    const CudaDevice *cuda = cuda_current();
    size_t count = input_count(v);
    cuda_launch(cuda, pool_max_gradient, cuda_grid(cuda, count), *v, chosen, dy, dx, accumulate,
                count);
}

static __global__ void pool_avg(Window v, const float *x, float *y, size_t count) {
    FOR_EACH(i, count) {
        Pixel at = pixel_of(i, v.oh, v.ow);
        Range rows = sight(v, at.row, v.h), cols = sight(v, at.column, v.w);
        const float *plane = x + at.plane * v.h * v.w;
        float sum = 0;
        for (size_t iy = rows.begin; iy < rows.end; iy++)
            for (size_t ix = cols.begin; ix < cols.end; ix++) sum += plane[iy * v.w + ix];
        y[i] = sum / (float)(v.kernel * v.kernel);
    }
}

static void cuda_avg_pool(const Window *v, const float *x, float *y) {
    const CudaDevice *cuda = cuda_current();
    size_t count = output_count(v);
    cuda_launch(cuda, pool_avg, cuda_grid(cuda, count), *v, x, y, count);
}

static __global__ void pool_avg_gradient(Window v, const float *dy, float *dx, bool accumulate,
                                         size_t count) {
    FOR_EACH(i, count) {
        Pixel at = pixel_of(i, v.h, v.w);
        Range rows = seen_by(v, at.row, v.oh), cols = seen_by(v, at.column, v.ow);
        float sum = 0;
        for (size_t oy = rows.begin; oy < rows.end; oy++)
            for (size_t ox = cols.begin; ox < cols.end; ox++)
                sum += dy[(at.plane * v.oh + oy) * v.ow + ox];
        put(&dx[i], sum / (float)(v.kernel * v.kernel), accumulate);
    }
}

static void cuda_avg_pool_gradient(const Window *v, const float *dy, float *dx, bool accumulate) {
    const CudaDevice *cuda = cuda_current();
    size_t count = input_count(v);
    cuda_launch(cuda, pool_avg_gradient, cuda_grid(cuda, count), *v, dy, dx, accumulate, count);
}

extern "C" const ConvolutionKernels cuda_convolution = {
    .conv2d_workspace = cuda_conv2d_workspace,
    .conv2d = cuda_conv2d,
    .conv2d_input_gradient = cuda_conv2d_input_gradient,
    .conv2d_weight_gradient = cuda_conv2d_weight_gradient,
    .conv2d_bias_gradient = cuda_conv2d_bias_gradient,
    .shortcut = cuda_shortcut,
    .shortcut_gradient = cuda_shortcut_gradient,
    .max_pool = cuda_max_pool,
    .max_pool_gradient = cuda_max_pool_gradient,
    .avg_pool = cuda_avg_pool,
    .avg_pool_gradient = cuda_avg_pool_gradient,
};
