/* half_conv.cu: convolution of images in 16 bits, channels last.
 *
 * Where there is cuDNN and it knows a way, it convolves (dnn.c), on such images as they are.
 * Otherwise a convolution is a matrix product of columns[pixels, taps], whose rows are what an
 * output pixel sees, and of weight[k, taps], where a tap is one (row, column, channel) of the
 * window: y[pixels, k] = columns weight^T. Its gradients are the two other products of the same
 * three matrices. They are added up in float32, and rounded to where they belong. (conv.cu is the
 * same for float32 images, whose columns lie the other way.)
 */
#include "common/device/cuda/half_images.cuh"

// ---- the workspace ---------------------------------------------------------------------------

struct Room {
    size_t images; // at a time
    char *columns; // [images, pixels, taps], in 16 bits or float32
    char *product; // in float32: [images, pixels, k] or [k, taps]; in 16 bits: [k, taps]
    char *library; // cuDNN's
    size_t bytes;
};

static char *room_take(Room *room, char *memory, size_t bytes) {
    char *place = memory ? memory + room->bytes : NULL;
    room->bytes += (bytes + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
    return place;
}

// Of one pass; without a plan it goes by columns.
static Room room_split(ConvolutionPass pass, const ConvolutionPlan *plan, const Window *v,
                       void *workspace) {
    char *memory = (char *)workspace;
    size_t pixels = v->oh * v->ow, taps = taps_of(v), weights = v->k * taps;
    Room room = {};
    if (plan) {
        size_t gradient = pass == CONVOLUTION_WEIGHT_GRADIENT ? weights : 0;
        room.product = room_take(&room, memory, gradient * sizeof(uint16_t));
        room.library = room_take(&room, memory, cuda_convolution_workspace(plan));
        return room;
    }
    room.images = images_at_a_time(v);
    size_t outputs = room.images * pixels * v->k;
    room.columns = room_take(&room, memory, room.images * pixels * taps * sizeof(float));
    room.product =
        room_take(&room, memory, (outputs > weights ? outputs : weights) * sizeof(float));
    return room;
}

size_t cuda_half_conv2d_workspace(Precision precision, const Window *v) {
    size_t most = 0;
    for (int i = CONVOLUTION_FORWARD; i <= CONVOLUTION_WEIGHT_GRADIENT; i++) {
        ConvolutionPass pass = (ConvolutionPass)i;
        size_t bytes = room_split(pass, cuda_convolution_plan(pass, precision, v), v, NULL).bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

// ---- columns ---------------------------------------------------------------------------------

// One thread per tap of a pixel's column, of `images` images. Neighbouring threads read
// neighbouring channels.
template <typename T>
static __global__ void gather_columns(Window v, size_t images, const T *x, T *columns) {
    HalfImages in = half_inputs(v), out = {images, v.oh, v.ow, taps_of(&v)};
    FOR_EACH(i, out.count()) {
        HalfPlace at = out.place(i);
        size_t channel = at.channel % v.c, kx = at.channel / v.c % v.kernel;
        size_t ky = at.channel / v.c / v.kernel;
        size_t row = at.row * v.stride + ky - v.pad; // above the input: a huge number
        size_t column = at.column * v.stride + kx - v.pad;
        bool inside = row < v.h && column < v.w;
        narrow_to(&columns[i], inside ? widened(x[in.index({at.image, row, column, channel})]) : 0);
    }
}

// The reverse, and to dx: every input adds up what the windows that see it hold for it in
// columns[images, pixels, taps].
template <typename T>
static __global__ void gather_input_gradient(Window v, size_t images, const float *columns, T *dx,
                                             bool accumulate) {
    HalfImages in = {images, v.h, v.w, v.c}, out = {images, v.oh, v.ow, taps_of(&v)};
    FOR_EACH(i, in.count()) {
        HalfPlace at = in.place(i);
        Range rows = seen_by(v, at.row, v.oh), cols = seen_by(v, at.column, v.ow);
        float sum = 0;
        for (size_t oy = rows.begin; oy < rows.end; oy++)
            for (size_t ox = cols.begin; ox < cols.end; ox++) {
                size_t ky = at.row + v.pad - oy * v.stride, kx = at.column + v.pad - ox * v.stride;
                sum +=
                    columns[out.index({at.image, oy, ox, (ky * v.kernel + kx) * v.c + at.channel})];
            }
        put_half(&dx[i], sum, accumulate);
    }
}

template <typename T>
static void make_columns(const Window *v, size_t images, const uint16_t *x, char *columns) {
    const CudaDevice *cuda = cuda_current();
    size_t count = images * v->oh * v->ow * taps_of(v);
    cuda_launch(cuda, gather_columns<T>, cuda_grid(cuda, count), *v, images, (const T *)x,
                (T *)columns);
}

template <typename T>
static void place_input_gradient(const Window *v, size_t images, const char *columns, uint16_t *dx,
                                 bool accumulate) {
    const CudaDevice *cuda = cuda_current();
    size_t count = images * v->h * v->w * v->c;
    cuda_launch(cuda, gather_input_gradient<T>, cuda_grid(cuda, count), *v, images,
                (const float *)columns, (T *)dx, accumulate);
}

// y[i] = round(product[i] + round(bias[i % k])); bias may be NULL. The product may be y itself.
template <typename From, typename T>
static __global__ void finish_kernel(Precision rounding, const From *product, const float *bias,
                                     T *y, size_t k, size_t count) {
    FOR_EACH(i, count)
    put_half(&y[i], widened(product[i]) + (bias ? rounded(rounding, bias[i % k]) : 0), false);
}

template <typename T>
static void finish_product(Precision rounding, const float *product, const float *bias, uint16_t *y,
                           size_t k, size_t count) {
    const CudaDevice *cuda = cuda_current();
    cuda_launch(cuda, finish_kernel<float, T>, cuda_grid(cuda, count), rounding, product, bias,
                (T *)y, k, count);
}

template <typename T>
static void add_bias(Precision rounding, const float *bias, uint16_t *y, size_t k, size_t count) {
    const CudaDevice *cuda = cuda_current();
    cuda_launch(cuda, finish_kernel<T, T>, cuda_grid(cuda, count), rounding, (const T *)y, bias,
                (T *)y, k, count);
}

static void multiply(Precision precision, MatmulShape shape, const void *a, const void *b, void *c,
                     bool accumulate) {
    const CudaBatch one = {precision, 1, 0, 0, 0};
    cuda_matmul_batch(&one, shape, a, b, (float *)c, accumulate);
}

static void columns_forward(Precision precision, const Window *v, const uint16_t *x,
                            const uint16_t *weight, const float *bias, uint16_t *y,
                            const Room &room) {
    size_t pixels = v->oh * v->ow, taps = taps_of(v), image = v->h * v->w * v->c;
    for (size_t first = 0; first < v->n; first += room.images) {
        size_t images = at_most(room.images, v->n - first), count = images * pixels * v->k;
        BY_PRECISION(precision, make_columns, v, images, x + first * image, room.columns);
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
        BY_PRECISION(precision, place_input_gradient, v, images, room.columns, dx + first * image,
                     accumulate);
    }
}

static void columns_weight_gradient(Precision precision, const Window *v, const uint16_t *x,
                                    const uint16_t *dy, const Room &room) {
    size_t pixels = v->oh * v->ow, image = v->h * v->w * v->c;
    for (size_t first = 0; first < v->n; first += room.images) {
        size_t images = at_most(room.images, v->n - first);
        BY_PRECISION(precision, make_columns, v, images, x + first * image, room.columns);
        multiply(precision, MatmulShape{true, false, v->k, taps_of(v), images * pixels},
                 dy + first * pixels * v->k, room.columns, room.product, first > 0);
    }
}

// ---- the table's -----------------------------------------------------------------------------

static void clear(void *x, size_t bytes) {
    CUDA(cudaMemsetAsync(x, 0, bytes, cuda_current()->compute));
}

void cuda_half_conv2d(Compute how, const Window *v, const uint16_t *x, const uint16_t *weight,
                      const float *bias, uint16_t *y) {
    size_t count = output_count(v);
    if (count == 0) return;
    const ConvolutionPlan *plan = cuda_convolution_plan(CONVOLUTION_FORWARD, how.precision, v);
    Room room = room_split(CONVOLUTION_FORWARD, plan, v, how.workspace);
    if (!plan && taps_of(v) > 0) {
        columns_forward(how.precision, v, x, weight, bias, y, room);
        return;
    }
    if (plan)
        cuda_convolution_run(plan, x, weight, y, false, room.library);
    else
        clear(y, count * sizeof *y);
    if (bias) BY_PRECISION(how.precision, add_bias, how.precision, bias, y, v->k, count);
}

void cuda_half_conv2d_input_gradient(Compute how, const Window *v, const uint16_t *weight,
                                     const uint16_t *dy, uint16_t *dx, bool accumulate) {
    size_t count = input_count(v);
    if (count == 0) return;
    const ConvolutionPlan *plan =
        cuda_convolution_plan(CONVOLUTION_INPUT_GRADIENT, how.precision, v);
    Room room = room_split(CONVOLUTION_INPUT_GRADIENT, plan, v, how.workspace);
    if (output_count(v) > 0 && plan)
        cuda_convolution_run(plan, weight, dy, dx, accumulate, room.library);
    else if (output_count(v) > 0)
        columns_input_gradient(how.precision, v, weight, dy, dx, accumulate, room);
    else if (!accumulate)
        clear(dx, count * sizeof *dx);
}

void cuda_half_conv2d_weight_gradient(Compute how, const Window *v, const uint16_t *x,
                                      const uint16_t *dy, float *dweight, bool accumulate) {
    size_t count = v->k * taps_of(v);
    if (count == 0) return;
    const ConvolutionPlan *plan =
        cuda_convolution_plan(CONVOLUTION_WEIGHT_GRADIENT, how.precision, v);
    Room room = room_split(CONVOLUTION_WEIGHT_GRADIENT, plan, v, how.workspace);
    if (output_count(v) == 0) {
        if (!accumulate) clear(dweight, count * sizeof *dweight);
        return;
    }
    if (plan)
        cuda_convolution_run(plan, x, dy, room.product, false, room.library);
    else
        columns_weight_gradient(how.precision, v, x, dy, room);
    CudaStored as = {plan ? how.precision : PRECISION_F32, how.precision};
    ImageSizes of = {v->k, v->c, v->kernel * v->kernel};
    cuda_widen_images(as, of, room.product, dweight, accumulate);
}

void cuda_half_conv2d_bias_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                    float *dbias, bool accumulate) {
    cuda_half_sum_channels(precision, dy, dbias, accumulate, ImageSizes{v->n, v->k, v->oh * v->ow});
}
