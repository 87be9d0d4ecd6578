/* conv.c: the CPU backend's convolution, computed directly from the images.
 *
 * Each tap (row, column) of the window reads one input pixel per output pixel. The image is lowered
 * along the columns only (MEC: Cho and Brand, "MEC: Memory-efficient Convolution for Deep Neural
 * Network", 2017): for each column of the window, a copy of each channel, shifted, cut to the
 * outputs' width, and zero-padded. At stride s a copy samples the columns with stride s, and its
 * rows are grouped by their index modulo s. So a tap's inputs are contiguous, and the inner loops
 * (conv_sums.h) run over whole planes, for any stride, padding and width. A window of 3 x 3 takes
 * three copies; the matrix of im2col has nine.
 *
 * The input gradient is a convolution of dy with mirrored weights. At stride s it is s^2 of them,
 * one for each position in a square of s x s pixels: pixels at the same position are seen by the
 * same taps.
 *
 * Planes that do not fit the core's own cache are computed in bands of rows. The bits of an image's
 * outputs, and of its input gradient, are independent of the rest of the batch. Nothing is kept for
 * the backward pass.
 */
#include "common/device/cpu/conv_sums.h"
#include "common/device/cpu/kernels.h"

#include <string.h>

// ---- lowering --------------------------------------------------------------------------------

// Rows or columns: output o and tap t see input o step + t + first, which is 0 outside [0, input).
typedef struct Axis {
    size_t outputs, taps, step, input;
    int64_t first;
} Axis;

static size_t input_at(const Axis *axis, size_t output, size_t tap) {
    return (size_t)((int64_t)(output * axis->step + tap) + axis->first);
}

// A plane of outputs that sees `channels` planes of inputs.
typedef struct View {
    Axis rows, columns;
    size_t channels;
} View;

// The outputs among `count` from `start` on whose tap lies inside the input, counted from start.
static Range axis_range(const Axis *axis, size_t tap, size_t start, size_t count) {
    const int64_t at = axis->first + (int64_t)tap, step = (int64_t)axis->step;
    const int64_t inside = (int64_t)axis->input - at;
    size_t begin = at < 0 ? (size_t)((step - 1 - at) / step) : 0;
    size_t end = inside > 0 ? (size_t)((inside + step - 1) / step) : 0;
    if (begin < start) begin = start;
    if (end > start + count) end = start + count;
    return begin < end ? (Range){begin - start, end - start} : (Range){0, 0};
}

static size_t view_taps(const View *view) {
    return view->rows.taps * view->columns.taps;
}

// [channels, columns' taps, groups, rows of a group, columns' outputs]: group y has the input rows
// that are seen by the window's rows y, y + step, ...
typedef struct Lowered {
    View view;
    size_t rows;   // rows of outputs in a band
    size_t groups; // per column of the window
    size_t group;  // elements of a group
    float *data;
    ConvLowered of; // the same data, for the sums
} Lowered;

enum { LOWERED_ELEMENTS = 1 << 17 }; // of a lowered image; more if one row of outputs needs more

static Lowered lowered_of(const View *view) {
    const Axis *rows = &view->rows;
    const size_t more = (rows->taps - 1) / rows->step; // rows of a group beyond the band's
    Lowered lowered = {.view = *view, .groups = rows->step < rows->taps ? rows->step : rows->taps};
    const size_t row = view->channels * view->columns.taps * lowered.groups * view->columns.outputs;
    const size_t fit =
        LOWERED_ELEMENTS / (row + 1) > more ? LOWERED_ELEMENTS / (row + 1) - more : 1;
    const size_t bands = (rows->outputs + fit - 1) / fit;
    lowered.rows = bands > 0 ? (rows->outputs + bands - 1) / bands : 0; // about equally high
    lowered.group = (lowered.rows + more) * view->columns.outputs;
    lowered.of = (ConvLowered){.channels = view->channels, .taps = view_taps(view)};
    lowered.of.plane = view->columns.taps * lowered.groups * lowered.group;
    return lowered;
}

static size_t round_up(size_t count, size_t to) {
    return (count + to - 1) / to * to;
}

// Elements of a lowered image's memory, its offsets included: whole cache lines, so that vectors in
// the memory behind it do not cross lines.
static size_t lowered_room(const Lowered *lowered) {
    return round_up(lowered->of.channels * lowered->of.plane + CONV_SLACK + lowered->of.taps, WIDE);
}

// Places the lowered image in `room` and returns the memory behind it.
static float *lowered_place(Lowered *lowered, float *room) {
    const Axis *rows = &lowered->view.rows, *columns = &lowered->view.columns;
    uint32_t *offsets = (void *)(room + lowered->of.channels * lowered->of.plane + CONV_SLACK);
    for (size_t y = 0; y < rows->taps; y++)
        for (size_t x = 0; x < columns->taps; x++)
            offsets[y * columns->taps + x] =
                (uint32_t)((x * lowered->groups + y % rows->step) * lowered->group +
                           y / rows->step * columns->outputs);
    lowered->of.data = lowered->data = room;
    lowered->of.offsets = offsets;
    return room + lowered_room(lowered);
}

// Returns the number of outputs in the band that begins at `row`.
static size_t lowered_pixels(const Lowered *lowered, size_t row) {
    const size_t left = lowered->view.rows.outputs - row;
    return (left < lowered->rows ? left : lowered->rows) * lowered->view.columns.outputs;
}

// The part of the next image, of `count` elements, that is prefetched while some of an image's
// `all` outputs are computed: an equal part.
static ConvAhead ahead_of(const float *next, size_t count, Range outputs, size_t all) {
    const size_t begin = count * outputs.begin / all;
    return (ConvAhead){next + begin, count * outputs.end / all - begin};
}

// The copy of one plane to one group.
typedef struct Copy {
    Range rows, columns; // of the group: inside the input. The others are padding.
    size_t source;       // index of the first copied pixel in the plane
} Copy;

static void zero_column(const Copy *copy, size_t width, float *out, size_t x) {
    for (size_t y = copy->rows.begin; y < copy->rows.end; y++) out[y * width + x] = 0;
}

static void zero_row_ends(const Copy *copy, size_t width, float *out) {
    for (size_t x = 0; x < copy->columns.begin; x++) zero_column(copy, width, out, x);
    for (size_t x = copy->columns.end; x < width; x++) zero_column(copy, width, out, x);
}

// Copies one channel's plane[h, w] to one group.
static void copy_plane(const Lowered *lowered, const Copy *copy, const float *plane, float *to) {
    const size_t width = lowered->view.columns.outputs, w = lowered->view.columns.input;
    const size_t above = copy->rows.begin * width, end = copy->rows.end * width;
    memset(to, 0, above * sizeof *to);
    memset(to + end, 0, (lowered->group - end) * sizeof *to);
    if (above == end) return;
    const size_t rows = copy->rows.end - copy->rows.begin, step = lowered->view.rows.step;
    const size_t count = copy->columns.end - copy->columns.begin;
    float *first = to + above + copy->columns.begin;
    if (step == 1 && width == w) // one run across all rows; other rows' pixels at their ends
        memcpy(first, plane + copy->source, ((rows - 1) * width + count) * sizeof *to);
    for (size_t y = 0; y < rows && !(step == 1 && width == w); y++)
        strided_copy(first + y * width, plane + copy->source + y * step * w, count, step);
    zero_row_ends(copy, width, to);
}

// Lowers image[channels, h, w] for the band that begins at `row`.
static void lowered_fill(const Lowered *lowered, size_t row, const float *image) {
    const Axis *rows = &lowered->view.rows, *columns = &lowered->view.columns;
    float *to = lowered->data;
    for (size_t x = 0; x < columns->taps; x++)
        for (size_t y = 0; y < lowered->groups; y++, to += lowered->group) {
            Copy copy = {axis_range(rows, y, row, lowered->group / columns->outputs),
                         axis_range(columns, x, 0, columns->outputs), 0};
            if (copy.columns.begin == copy.columns.end) copy.rows.end = copy.rows.begin;
            if (copy.rows.begin < copy.rows.end)
                copy.source = input_at(rows, row + copy.rows.begin, y) * columns->input +
                              input_at(columns, copy.columns.begin, x);
            for (size_t c = 0; c < lowered->of.channels; c++)
                copy_plane(lowered, &copy, image + c * rows->input * columns->input,
                           to + c * lowered->of.plane);
        }
}

// ---- sums of taps: forward, and input gradient -----------------------------------------------

// The weight of output k, channel c and the view's tap [y, x] has the index
// k output + c channel + first + y row + x column.
typedef struct WeightOrder {
    size_t output, channel;
    int64_t first, row, column;
} WeightOrder;

// packed[outputs / CONV_FILTERS, channels, taps, CONV_FILTERS] = weight
static void pack(const View *view, const WeightOrder *order, const float *weight, size_t outputs,
                 float *packed) {
    const size_t filter = view->channels * view_taps(view); // elements
    for (size_t k = 0; k < round_up(outputs, CONV_FILTERS); k++) {
        float *to = packed + k / CONV_FILTERS * CONV_FILTERS * filter + k % CONV_FILTERS;
        for (size_t c = 0; c < view->channels; c++) {
            const float *from = weight + k * order->output + c * order->channel;
            for (size_t y = 0; y < view->rows.taps; y++)
                for (size_t x = 0; x < view->columns.taps; x++, to += CONV_FILTERS)
                    *to = k < outputs ? from[order->first + (int64_t)y * order->row +
                                             (int64_t)x * order->column]
                                      : 0;
        }
    }
}

// Elements of packed weights.
static size_t packed_room(const View *view, size_t outputs) {
    return round_up(outputs, CONV_FILTERS) * view->channels * view_taps(view);
}

static View forward_view(const Window *v) {
    const int64_t first = -(int64_t)v->pad;
    return (View){{v->oh, v->kernel, v->stride, v->h, first},
                  {v->ow, v->kernel, v->stride, v->w, first},
                  v->c};
}

static void cpu_conv2d(Compute how, const Window *v, const float *x, const float *weight,
                       const float *bias, float *y) {
    ConvCounts n = host_conv_counts(v);
    const HostCounts counts = {n.x, n.weight, v->k, n.y};
    HostProduct p =
        host_begin(how.precision, counts, (HostProduct){x, weight, bias, y, false, how.workspace});
    const View view = forward_view(v);
    const size_t area = view_taps(&view), plane = v->oh * v->ow, image = v->c * v->h * v->w;
    const WeightOrder order = {v->c * area, area, 0, (int64_t)v->kernel, 1};
    Lowered lowered = lowered_of(&view);
    float *packed = lowered_place(&lowered, p.workspace);
    pack(&view, &order, p.b, v->k, packed);
    ConvSums sums = {lowered.of, packed, p.bias, .outputs = v->k, .stride = plane};
    for (size_t i = 0; i < v->n; i++)
        for (size_t row = 0; row < v->oh; row += lowered.rows) {
            lowered_fill(&lowered, row, p.a + i * image);
            sums.to = p.c + i * v->k * plane + row * v->ow;
            sums.pixels = lowered_pixels(&lowered, row);
            sums.ahead = ahead_of(p.a + (i + 1) * image, image,
                                  (Range){row * v->ow, row * v->ow + sums.pixels}, plane);
            conv_fastest()->sums(&sums);
        }
    host_end(how.precision, counts, &p, y, false);
}

// The view of dy from the pixels part, part + stride, ... of an axis of dx. They are seen by the
// window's taps (part + pad) % stride + a multiple of stride; the view has these in reverse order.
static Axis gradient_axis(const Window *v, size_t part, size_t input, size_t output) {
    const size_t tap = (part + v->pad) % v->stride;
    const size_t taps = tap < v->kernel ? (v->kernel - tap - 1) / v->stride + 1 : 0;
    const int64_t last = (int64_t)((part + v->pad) / v->stride);
    return (Axis){part < input ? (input - part - 1) / v->stride + 1 : 0, taps, 1, output,
                  last - (int64_t)taps + 1};
}

// The view of dy from the pixels of dx at position [part / stride, part % stride] of each square of
// stride x stride.
static View gradient_view(const Window *v, size_t part) {
    return (View){gradient_axis(v, part / v->stride, v->h, v->oh),
                  gradient_axis(v, part % v->stride, v->w, v->ow), v->k};
}

static bool view_is_empty(const View *view) {
    return view_taps(view) == 0 || view->rows.outputs == 0 || view->columns.outputs == 0;
}

static WeightOrder gradient_order(const Window *v, const View *view, size_t part) {
    const size_t s = v->stride, area = v->kernel * v->kernel;
    const size_t y = (part / s + v->pad) % s + s * (view->rows.taps - 1);
    const size_t x = (part % s + v->pad) % s + s * (view->columns.taps - 1);
    return (WeightOrder){area, v->c * area, (int64_t)(y * v->kernel + x), -(int64_t)(s * v->kernel),
                         -(int64_t)s};
}

// Stores a part's sums[c, pixels], in rows of `width` pixels, at every stride-th pixel of every
// stride-th row of dx[c, h, w].
static void spread(const Window *v, const ConvSums *sums, size_t width, float *dx,
                   bool accumulate) {
    const float *from = sums->to;
    for (size_t c = 0; c < v->c; c++)
        for (size_t row = 0; row < sums->pixels / width; row++) {
            float *to = dx + (c * v->h + row * v->stride) * v->w;
            for (size_t x = 0; x < width; x++, to += v->stride, from++)
                *to = accumulate ? *to + *from : *from;
        }
}

// One part of dx (+)=. At stride 1 it is all of dx, and its sums go there directly.
static void gradient_part(const Window *v, size_t part, const HostProduct *p) {
    const View view = gradient_view(v, part);
    if (view_is_empty(&view)) return;
    const WeightOrder order = gradient_order(v, &view, part);
    const size_t plane = v->h * v->w, width = view.columns.outputs, image = v->k * v->oh * v->ow;
    const bool whole = v->stride == 1;
    Lowered lowered = lowered_of(&view);
    float *packed = lowered_place(&lowered, p->workspace),
          *pixels = packed + packed_room(&view, v->c);
    pack(&view, &order, p->a, v->c, packed);
    ConvSums sums = {lowered.of, packed, .outputs = v->c, .accumulate = whole && p->accumulate};
    for (size_t i = 0; i < v->n; i++)
        for (size_t row = 0; row < view.rows.outputs; row += lowered.rows) {
            float *dx = p->c + i * v->c * plane;
            lowered_fill(&lowered, row, p->b + i * image);
            sums.pixels = lowered_pixels(&lowered, row);
            sums.ahead = ahead_of(p->b + (i + 1) * image, image,
                                  (Range){row * width, row * width + sums.pixels},
                                  view.rows.outputs * width);
            sums.to = whole ? dx + row * v->w : pixels;
            sums.stride = whole ? plane : sums.pixels;
            conv_fastest()->sums(&sums);
            dx += (row * v->stride + part / v->stride) * v->w + part % v->stride;
            if (!whole) spread(v, &sums, width, dx, p->accumulate);
        }
}

static void cpu_conv2d_input_gradient(Compute how, const Window *v, const float *weight,
                                      const float *dy, float *dx, bool accumulate) {
    ConvCounts n = host_conv_counts(v);
    const HostCounts counts = {n.weight, n.y, 0, n.x};
    HostProduct p = host_begin(how.precision, counts,
                               (HostProduct){weight, dy, NULL, dx, accumulate, how.workspace});
    if (v->kernel < v->stride && !p.accumulate) // no window sees some pixels
        memset(p.c, 0, n.x * sizeof *dx);
    for (size_t part = 0; part < v->stride * v->stride; part++) gradient_part(v, part, &p);
    host_end(how.precision, counts, &p, dx, accumulate);
}

// ---- weight gradient -------------------------------------------------------------------------

// Transposes four rows of four.
static void turn_4x4(float *to, size_t to_stride, const float *from, size_t stride) {
    FourFloats in[4], pairs[4], out[4];
    for (size_t i = 0; i < 4; i++) memcpy(&in[i], from + i * stride, sizeof in[i]);
    for (size_t i = 0; i < 2; i++) { // rows i and i + 2 of columns 0, 1, then 2, 3
        pairs[i] = __builtin_shufflevector(in[i], in[i + 2], 0, 4, 1, 5);
        pairs[i + 2] = __builtin_shufflevector(in[i], in[i + 2], 2, 6, 3, 7);
    }
    for (size_t i = 0; i < 4; i += 2) {
        out[i] = __builtin_shufflevector(pairs[i], pairs[i + 1], 0, 4, 1, 5);
        out[i + 1] = __builtin_shufflevector(pairs[i], pairs[i + 1], 2, 6, 3, 7);
    }
    for (size_t j = 0; j < 4; j++) memcpy(to + j * to_stride, &out[j], sizeof out[j]);
}

// to[pixels, CONV_BLOCK] = dy[channels, pixels] transposed, for one block of channels, which are
// `plane` elements apart in dy.
static void turn(float *to, const float *dy, size_t channels, size_t pixels, size_t plane) {
    const size_t whole_channels = channels / 4 * 4, whole_pixels = pixels / 4 * 4;
    for (size_t k = 0; k < whole_channels; k += 4)
        for (size_t p = 0; p < whole_pixels; p += 4)
            turn_4x4(to + p * CONV_BLOCK + k, CONV_BLOCK, dy + k * plane + p, plane);
    for (size_t k = 0; k < channels; k++)
        for (size_t p = k < whole_channels ? whole_pixels : 0; p < pixels; p++)
            to[p * CONV_BLOCK + k] = dy[k * plane + p];
}

static size_t blocks_of(const Window *v) {
    return (v->k + CONV_BLOCK - 1) / CONV_BLOCK;
}

// Elements of a chunk's turned gradients and of the sums.
static size_t weight_room(const Window *v) {
    return blocks_of(v) * CONV_BLOCK * (CONV_CHUNK + v->c * v->kernel * v->kernel);
}

// Adds a band of pixels of one image, dy[k, oh, ow], to the sums. `next` is the image after it;
// `turned` is 0 beyond the last channel.
static void add_band(ConvWeightSums *sums, const Window *v, const float *next, const float *dy,
                     Range band, float *turned) {
    const size_t plane = v->oh * v->ow;
    for (size_t p = band.begin; p < band.end; p += CONV_CHUNK) {
        const Range chunk = {p, band.end - p < CONV_CHUNK ? band.end : p + CONV_CHUNK};
        sums->first = p - band.begin;
        sums->pixels = chunk.end - p;
        sums->ahead[0] = ahead_of(next, v->c * v->h * v->w, chunk, plane);
        sums->ahead[1] = ahead_of(dy + v->k * plane, v->k * plane, chunk, plane);
        for (size_t b = 0; b < sums->blocks; b++) {
            const size_t first = b * CONV_BLOCK, channels = v->k - first;
            turn(turned + first * CONV_CHUNK, dy + first * plane + p,
                 channels < CONV_BLOCK ? channels : CONV_BLOCK, sums->pixels, plane);
        }
        conv_fastest()->weight_sums(sums);
    }
}

static void cpu_conv2d_weight_gradient(Compute how, const Window *v, const float *x,
                                       const float *dy, float *dweight, bool accumulate) {
    ConvCounts n = host_conv_counts(v);
    const HostCounts counts = {n.x, n.y, 0, n.weight};
    HostProduct p = host_begin(how.precision, counts,
                               (HostProduct){x, dy, NULL, dweight, accumulate, how.workspace});
    const View view = forward_view(v);
    const size_t filter = v->c * view_taps(&view), plane = v->oh * v->ow;
    const size_t image = v->c * v->h * v->w;
    Lowered lowered = lowered_of(&view);
    float *turned = lowered_place(&lowered, p.workspace);
    ConvWeightSums sums = {.lowered = lowered.of, .dy = turned, .blocks = blocks_of(v)};
    sums.to = turned + sums.blocks * CONV_BLOCK * CONV_CHUNK;
    memset(turned, 0, weight_room(v) * sizeof *turned);
    for (size_t i = 0; i < v->n; i++)
        for (size_t row = 0; row < v->oh; row += lowered.rows) {
            const Range band = {row * v->ow, row * v->ow + lowered_pixels(&lowered, row)};
            lowered_fill(&lowered, row, p.a + i * image);
            add_band(&sums, v, p.a + (i + 1) * image, p.b + i * v->k * plane, band, turned);
        }
    for (size_t k = 0; k < v->k; k++)
        for (size_t j = 0; j < filter; j++)
            kernel_store(
                &p.c[k * filter + j],
                (double)sums.to[(k / CONV_BLOCK * filter + j) * CONV_BLOCK + k % CONV_BLOCK],
                p.accumulate);
    host_end(how.precision, counts, &p, dweight, accumulate);
}

static void cpu_conv2d_bias_gradient(const Window *v, const float *dy, float *dbias,
                                     bool accumulate) {
    size_t plane = v->oh * v->ow;
    for (size_t k = 0; k < v->k; k++) {
        double sum = 0;
        for (size_t i = 0; i < v->n; i++) sum += cpu_sum(dy + (i * v->k + k) * plane, plane);
        kernel_store(&dbias[k], sum, accumulate);
    }
}

static size_t larger_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t cpu_conv2d_workspace(Precision precision, const Window *v) {
    const View view = forward_view(v);
    const Lowered lowered = lowered_of(&view);
    size_t room = lowered_room(&lowered) + larger_size(packed_room(&view, v->k), weight_room(v));
    for (size_t part = 0; part < v->stride * v->stride; part++) {
        const View of_part = gradient_view(v, part);
        if (view_is_empty(&of_part)) continue;
        const Lowered gradients = lowered_of(&of_part);
        size_t pixels = v->stride > 1 ? v->c * lowered_pixels(&gradients, 0) : 0;
        room = larger_size(room, lowered_room(&gradients) + packed_room(&of_part, v->c) + pixels);
    }
    return host_conv2d_workspace(precision, v) + room * sizeof(float);
}

const ConvolutionKernels cpu_convolution = {
    .conv2d_workspace = cpu_conv2d_workspace,
    .conv2d = cpu_conv2d,
    .conv2d_input_gradient = cpu_conv2d_input_gradient,
    .conv2d_weight_gradient = cpu_conv2d_weight_gradient,
    .conv2d_bias_gradient = cpu_conv2d_bias_gradient,
    .shortcut = cpu_shortcut,
    .shortcut_gradient = cpu_shortcut_gradient,
    .max_pool = cpu_max_pool,
    .max_pool_gradient = cpu_max_pool_gradient,
    .avg_pool = cpu_avg_pool,
    .avg_pool_gradient = cpu_avg_pool_gradient,
};
