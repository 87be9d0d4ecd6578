/* conv.c: the CPU backend's sliding windows: convolution, shortcut, pooling.
 *
 * A convolution is a matrix product once every output pixel's window of the input has been written
 * out as a column ("im2col"): y[k, pixels] = weight[k, taps] columns[taps, pixels], where a tap is
 * one (channel, row, column) of the window. Its gradients are the two other products of the same
 * three matrices. The columns hold each input value kernel^2 times, so they are made for a strip of
 * a few output rows at a time: a strip fits the core's own cache, next to nothing of it reaches
 * main memory, and two cores do not slow each other down. Nothing is kept: the backward pass makes
 * them again.
 */
#include "common/device/cpu/kernels.h"

#include <math.h>
#include <string.h>

// ---- strips and columns ----------------------------------------------------------------------

// Some whole output rows of one image.
typedef struct Strip {
    size_t image, row, rows;
    size_t pixel, pixels; // the same in pixels of the output plane
} Strip;

static size_t window_taps(const Window *v) {
    return v->c * v->kernel * v->kernel;
}

// A 1x1 convolution at stride 1: the input is its own columns.
static bool window_is_plain(const Window *v) {
    return v->kernel == 1 && v->stride == 1 && v->pad == 0;
}

// Products of up to a million multiplications are those that OpenBLAS computes without first
// packing its operands, measured at up to 1.8 times the speed. Below 64 columns that gain is lost
// again; and above 512 what is turned for the weight gradient leaves the L1 cache.
static size_t strip_rows(const Window *v) {
    size_t pixels = 1000000 / (v->k * window_taps(v) + 1);
    if (pixels < 64) pixels = 64;
    if (pixels > 512) pixels = 512;
    size_t rows = pixels / v->ow > 0 ? pixels / v->ow : 1;
    if (rows >= v->oh) return v->oh;
    size_t strips = (v->oh + rows - 1) / rows;
    return (v->oh + strips - 1) / strips; // so that all strips are about equally high
}

// Moves on to the next strip, starting from {0}. False after the last one.
static bool strip_next(Strip *strip, const Window *v) {
    size_t row = strip->row + strip->rows;
    if (row == v->oh) {
        row = 0;
        strip->image++;
    }
    if (strip->image >= v->n || v->oh * v->ow == 0) return false;
    size_t rows = strip_rows(v);
    strip->row = row;
    strip->rows = row + rows <= v->oh ? rows : v->oh - row;
    strip->pixel = strip->row * v->ow;
    strip->pixels = strip->rows * v->ow;
    return true;
}

// The outputs [begin, end) of a row or column of outputs.
typedef struct Range {
    size_t begin, end;
} Range;

// One tap (ky, kx) of the window, for all pixels of a strip: where it lies inside the input. The
// outputs outside of these ranges see padding there.
typedef struct Tap {
    Range rows, columns; // of the strip
    size_t first;        // the pixel of the strip at (rows.begin, columns.begin) ...
    size_t source;       // ... and the one of the input's plane that it sees
    size_t run;          // from the first pixel to the last one inside, with what lies between
} Tap;

// How many steps of a stride it takes to come as far. (A division takes longer than all the rest.)
static size_t steps_to(const Window *v, size_t distance) {
    return v->stride == 1 ? distance : (distance + v->stride - 1) / v->stride;
}

// The outputs among `count` from `start` on whose tap lies inside `input`.
static Range tap_range(const Window *v, size_t tap, size_t input, size_t start, size_t count) {
    size_t begin = tap < v->pad ? steps_to(v, v->pad - tap) : 0;
    size_t end = input + v->pad > tap ? steps_to(v, input + v->pad - tap) : 0;
    if (begin < start) begin = start;
    if (end > start + count) end = start + count;
    return begin < end ? (Range){begin - start, end - start} : (Range){0, 0};
}

static Tap tap_at(const Window *v, const Strip *strip, size_t ky, size_t kx) {
    Tap tap = {.rows = tap_range(v, ky, v->h, strip->row, strip->rows),
               .columns = tap_range(v, kx, v->w, 0, v->ow)};
    if (tap.rows.begin == tap.rows.end || tap.columns.begin == tap.columns.end) return (Tap){0};
    tap.first = tap.rows.begin * v->ow + tap.columns.begin;
    tap.source = ((strip->row + tap.rows.begin) * v->stride + ky - v->pad) * v->w +
                 tap.columns.begin * v->stride + kx - v->pad;
    tap.run = (tap.rows.end - 1) * v->ow + tap.columns.end - tap.first;
    return tap;
}

// With stride 1 and equally wide output, a tap's pixels lie in the input as they lie in the output:
// shifted, but in one run across all rows. (At the ends of rows it holds other rows' pixels.)
static bool window_is_same(const Window *v) {
    return v->stride == 1 && v->ow == v->w;
}

static void zero_column(const Tap *tap, size_t width, float *out, size_t x) {
    for (size_t y = tap->rows.begin; y < tap->rows.end; y++) out[y * width + x] = 0;
}

static void zero_row_ends(const Tap *tap, size_t width, float *out) {
    for (size_t x = 0; x < tap->columns.begin; x++) zero_column(tap, width, out, x);
    for (size_t x = tap->columns.end; x < width; x++) zero_column(tap, width, out, x);
}

static void gather_row(float *row, const float *source, size_t count, size_t stride) {
    if (stride == 1)
        memcpy(row, source, count * sizeof *row);
    else if (stride == 2) // a stride known to the compiler can be vectorised
        for (size_t i = 0; i < count; i++) row[i] = source[i * 2];
    else
        for (size_t i = 0; i < count; i++) row[i] = source[i * stride];
}

static void scatter_row(const float *row, float *destination, size_t count, size_t stride) {
    for (size_t i = 0; i < count; i++) destination[i * stride] += row[i];
}

// Copies what one tap sees of plane[h, w] to out[pixels].
static void gather_tap(const Window *v, const Strip *strip, const Tap *tap, const float *plane,
                       float *out) {
    size_t above = tap->rows.begin * v->ow, inside_end = tap->rows.end * v->ow;
    if (above > 0) memset(out, 0, above * sizeof *out);
    if (inside_end < strip->pixels)
        memset(out + inside_end, 0, (strip->pixels - inside_end) * sizeof *out);
    if (tap->run == 0) return;
    if (window_is_same(v)) {
        memcpy(out + tap->first, plane + tap->source, tap->run * sizeof *out);
    } else {
        for (size_t y = 0; y < tap->rows.end - tap->rows.begin; y++)
            gather_row(out + tap->first + y * v->ow, plane + tap->source + y * v->stride * v->w,
                       tap->columns.end - tap->columns.begin, v->stride);
    }
    zero_row_ends(tap, v->ow, out);
}

// The reverse: adds the gradients in[pixels] to the pixels of plane[h, w] that the tap saw.
static void scatter_tap(const Window *v, const Tap *tap, float *in, float *plane) {
    if (tap->run == 0) return;
    if (window_is_same(v)) {
        zero_row_ends(tap, v->ow, in);
        cpu_elementwise.accumulate(plane + tap->source, in + tap->first, tap->run);
    } else {
        for (size_t y = 0; y < tap->rows.end - tap->rows.begin; y++)
            scatter_row(in + tap->first + y * v->ow, plane + tap->source + y * v->stride * v->w,
                        tap->columns.end - tap->columns.begin, v->stride);
    }
}

// Returns the columns of a strip of x[n, c, h, w] as a matrix [taps, pixels]. They are written to
// columns[c, kernel, kernel, pixels], unless they lie in x already.
static CpuMatrix strip_gather(const Window *v, const Strip *strip, const float *x, float *columns) {
    size_t plane = v->h * v->w, area = v->kernel * v->kernel;
    const float *image = x + strip->image * v->c * plane;
    if (window_is_plain(v)) return (CpuMatrix){image + strip->pixel, plane, false};
    for (size_t i = 0; i < area; i++) {
        Tap tap = tap_at(v, strip, i / v->kernel, i % v->kernel);
        for (size_t c = 0; c < v->c; c++)
            gather_tap(v, strip, &tap, image + c * plane, columns + (c * area + i) * strip->pixels);
    }
    return (CpuMatrix){columns, strip->pixels, false};
}

static void strip_scatter(const Window *v, const Strip *strip, float *columns, float *dx) {
    size_t plane = v->h * v->w, area = v->kernel * v->kernel;
    float *image = dx + strip->image * v->c * plane;
    for (size_t i = 0; i < area; i++) {
        Tap tap = tap_at(v, strip, i / v->kernel, i % v->kernel);
        for (size_t c = 0; c < v->c; c++)
            scatter_tap(v, &tap, columns + (c * area + i) * strip->pixels, image + c * plane);
    }
}

// ---- convolution -----------------------------------------------------------------------------

// One strip's columns [taps, pixels], then, for the weight gradient, dy_turned [pixels, k] and
// sum_turned [taps, k].
static size_t cpu_conv2d_workspace(Precision precision, const Window *v) {
    size_t taps = window_taps(v), pixels = 0;
    if (v->oh > 0 && v->ow > 0) pixels = strip_rows(v) * v->ow;
    return host_conv2d_workspace(precision, v) +
           (taps * pixels + pixels * v->k + taps * v->k) * sizeof(float);
}

static void cpu_conv2d(Compute how, const Window *v, const float *x, const float *weight,
                       const float *bias, float *y) {
    ConvCounts n = host_conv_counts(v);
    const HostCounts counts = {n.x, n.weight, v->k, n.y};
    HostProduct p =
        host_begin(how.precision, counts, (HostProduct){x, weight, bias, y, false, how.workspace});
    size_t plane = v->oh * v->ow, taps = window_taps(v);
    CpuMatrix w = {p.b, taps, false};
    for (Strip strip = {0}; strip_next(&strip, v);) {
        float *out = p.c + strip.image * v->k * plane + strip.pixel; // [k, pixels], plane apart
        for (size_t k = 0; bias && k < v->k; k++)
            cpu_elementwise.fill(out + k * plane, p.bias[k], strip.pixels);
        CpuMatrix columns = strip_gather(v, &strip, p.a, p.workspace);
        cpu_matmul_strided(v->k, strip.pixels, taps, w, columns, out, plane, bias != NULL);
    }
    host_end(how.precision, counts, &p, y, false);
}

// columns' gradient [taps, pixels] = weight^T dy, added to where the columns came from.
static void cpu_conv2d_input_gradient(Compute how, const Window *v, const float *weight,
                                      const float *dy, float *dx, bool accumulate) {
    ConvCounts n = host_conv_counts(v);
    const HostCounts counts = {n.weight, n.y, 0, n.x};
    HostProduct p = host_begin(how.precision, counts,
                               (HostProduct){weight, dy, NULL, dx, accumulate, how.workspace});
    size_t plane = v->oh * v->ow, taps = window_taps(v), image = v->c * v->h * v->w;
    CpuMatrix w = {p.a, taps, true};
    bool plain = window_is_plain(v);
    if (!plain && !p.accumulate) memset(p.c, 0, v->n * image * sizeof *dx);
    for (Strip strip = {0}; strip_next(&strip, v);) {
        CpuMatrix in = {p.b + strip.image * v->k * plane + strip.pixel, plane, false};
        if (plain) {
            cpu_matmul_strided(taps, strip.pixels, v->k, w, in,
                               p.c + strip.image * image + strip.pixel, plane, p.accumulate);
            continue;
        }
        cpu_matmul_strided(taps, strip.pixels, v->k, w, in, p.workspace, strip.pixels, false);
        strip_scatter(v, &strip, p.workspace, p.c);
    }
    host_end(how.precision, counts, &p, dx, accumulate);
}

// Four floats side by side (a vector type of GCC and clang).
typedef float FourFloats __attribute__((vector_size(16)));

// Turns four rows of four.
static void turn_4x4(float *to, size_t to_stride, const float *from, size_t stride) {
    FourFloats in[4];
    for (size_t i = 0; i < 4; i++) memcpy(&in[i], from + i * stride, sizeof in[i]);
    for (size_t j = 0; j < 4; j++) {
        FourFloats out = {in[0][j], in[1][j], in[2][j], in[3][j]};
        memcpy(to + j * to_stride, &out, sizeof out);
    }
}

// to[columns, rows] = from[rows, columns] transposed
static void turn(float *to, const float *from, size_t rows, size_t columns, size_t stride) {
    const size_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
    for (size_t i = 0; i < whole_rows; i += 4)
        for (size_t j = 0; j < whole_columns; j += 4)
            turn_4x4(to + j * rows + i, rows, from + i * stride + j, stride);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = i < whole_rows ? whole_columns : 0; j < columns; j++)
            to[j * rows + i] = from[i * stride + j];
}

enum { THIN = 8 }; // output channels

VECTORISED static double dot(const float *a, const float *b, size_t count) {
    return lanes_reduce(a, b, NULL, count);
}

// One strip of a thin weight gradient, sum_turned[taps, k] (+)= columns dy^T. (OpenBLAS's kernel
// for products so small allocates memory in every call.)
static void thin_product(const Window *v, const Strip *strip, CpuMatrix columns, const float *dy,
                         float *sum_turned, bool accumulate) {
    size_t plane = v->oh * v->ow, taps = window_taps(v);
    for (size_t tap = 0; tap < taps; tap++)
        for (size_t k = 0; k < v->k; k++)
            kernel_store(&sum_turned[tap * v->k + k],
                         dot(columns.data + tap * columns.stride, dy + k * plane, strip->pixels),
                         accumulate);
}

// dweight = dy columns^T, summed over all strips. It is computed as its transpose, columns dy^T,
// with dy turned beforehand: then no operand of the product is transposed, which OpenBLAS computes
// at about twice the speed for these shapes.
static void cpu_conv2d_weight_gradient(Compute how, const Window *v, const float *x,
                                       const float *dy, float *dweight, bool accumulate) {
    ConvCounts n = host_conv_counts(v);
    const HostCounts counts = {n.x, n.y, 0, n.weight};
    HostProduct p = host_begin(how.precision, counts,
                               (HostProduct){x, dy, NULL, dweight, accumulate, how.workspace});
    size_t plane = v->oh * v->ow, taps = window_taps(v), pixels = n.y ? strip_rows(v) * v->ow : 0;
    float *columns_room = p.workspace, *dy_turned = columns_room + taps * pixels;
    float *sum_turned = dy_turned + pixels * v->k;
    bool started = false;
    for (Strip strip = {0}; strip_next(&strip, v); started = true) {
        const float *part = p.b + strip.image * v->k * plane + strip.pixel; // [k, pixels]
        CpuMatrix columns = strip_gather(v, &strip, p.a, columns_room);
        if (v->k < THIN) {
            thin_product(v, &strip, columns, part, sum_turned, started);
            continue;
        }
        turn(dy_turned, part, v->k, strip.pixels, plane);
        cpu_matmul_strided(taps, v->k, strip.pixels, columns, (CpuMatrix){dy_turned, v->k, false},
                           sum_turned, v->k, started);
    }
    for (size_t k = 0, i = 0; k < v->k; k++)
        for (size_t tap = 0; tap < taps; tap++, i++) {
            float sum = started ? sum_turned[tap * v->k + k] : 0;
            p.c[i] = p.accumulate ? p.c[i] + sum : sum;
        }
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

// ---- shortcut --------------------------------------------------------------------------------

static void cpu_shortcut(const Window *v, const float *x, float *y) {
    size_t before = (v->k - v->c) / 2, plane = v->oh * v->ow;
    memset(y, 0, v->n * v->k * plane * sizeof *y);
    for (size_t i = 0; i < v->n; i++)
        for (size_t c = 0; c < v->c; c++)
            for (size_t row = 0; row < v->oh; row++)
                gather_row(y + (i * v->k + before + c) * plane + row * v->ow,
                           x + ((i * v->c + c) * v->h + row * v->stride) * v->w, v->ow, v->stride);
}

static void cpu_shortcut_gradient(const Window *v, const float *dy, float *dx, bool accumulate) {
    size_t before = (v->k - v->c) / 2, plane = v->oh * v->ow;
    if (!accumulate) memset(dx, 0, v->n * v->c * v->h * v->w * sizeof *dx);
    for (size_t i = 0; i < v->n; i++)
        for (size_t c = 0; c < v->c; c++)
            for (size_t row = 0; row < v->oh; row++)
                scatter_row(dy + (i * v->k + before + c) * plane + row * v->ow,
                            dx + ((i * v->c + c) * v->h + row * v->stride) * v->w, v->ow,
                            v->stride);
}

// ---- pooling ---------------------------------------------------------------------------------

static void check_pool(const Window *v) { // PyTorch's rule
    CHECK(2 * v->pad <= v->kernel, "pad %zu for kernel %zu: a window may see padding only", v->pad,
          v->kernel);
}

// The input rows (or columns) that window `index` covers.
static Range pool_range(const Window *v, size_t index, size_t input) {
    size_t begin = index * v->stride, end = begin + v->kernel; // counted from the padding's edge
    return (Range){begin > v->pad ? begin - v->pad : 0,
                   end < input + v->pad ? end - v->pad : input};
}

// The position of the largest value of a window of plane[h, width].
static size_t largest(const float *plane, size_t width, Range rows, Range columns) {
    size_t best = rows.begin * width + columns.begin;
    for (size_t y = rows.begin; y < rows.end; y++)
        for (size_t x = columns.begin; x < columns.end; x++) {
            float value = plane[y * width + x], record = plane[best];
            if (value > record || (isnan(value) && !isnan(record))) best = y * width + x;
        }
    return best;
}

// Four windows of 2 x 2 side by side, without a branch, which the processor would guess wrong every
// other time.
typedef int32_t FourPlaces __attribute__((vector_size(16)));

static FourFloats four_at(const float *plane, FourPlaces at) {
    return (FourFloats){plane[at[0]], plane[at[1]], plane[at[2]], plane[at[3]]};
}

// Of eight neighbours those at even and those at odd places: left and right pixels of four windows.
static void load_pairs(const float *row, FourFloats *left, FourFloats *right) {
    FourFloats a, b;
    memcpy(&a, row, sizeof a);
    memcpy(&b, row + 4, sizeof b);
    *left = (FourFloats){a[0], a[2], b[0], b[2]};
    *right = (FourFloats){a[1], a[3], b[1], b[3]};
}

// The largest of each window of four, and its position; `corner` is the first value of each.
static FourFloats largest_of_2x2(const FourFloats values[4], int32_t width, FourPlaces corner,
                                 FourPlaces *chosen) {
    const FourPlaces places[4] = {corner, corner + 1, corner + width, corner + width + 1};
    FourFloats record = values[0];
    *chosen = corner;
    for (int i = 1; i < 4; i++) {
        FourFloats value = values[i];
        // All bits are set where the value is greater, or is the first that is not a number.
        FourPlaces wins = ~(value <= record) & (record == record);
        record = (FourFloats)((wins & (FourPlaces)value) | (~wins & (FourPlaces)record));
        *chosen = (wins & places[i]) | (~wins & *chosen);
    }
    return record;
}

// The last windows of a row, of which there are fewer than four.
static void max_pool_rest(const float *plane, int32_t width, size_t first, size_t count, float *y,
                          int32_t *chosen) {
    const FourPlaces last = (int32_t)(first + 2 * (count - 1)) + (FourPlaces){0};
    FourPlaces corner = (int32_t)first + (FourPlaces){0, 2, 4, 6}, best;
    FourPlaces beyond = corner > last; // there the last window is computed again
    corner = (beyond & last) | (~beyond & corner);
    const FourFloats values[4] = {four_at(plane, corner), four_at(plane, corner + 1),
                                  four_at(plane, corner + width),
                                  four_at(plane, corner + width + 1)};
    FourFloats record = largest_of_2x2(values, width, corner, &best);
    for (size_t k = 0; k < count; k++) {
        y[k] = record[k];
        chosen[k] = best[k];
    }
}

// One row of windows of 2 x 2 with a stride of 2, which most networks have. The first one's corner
// is at position `first` of the plane.
static void max_pool_row_2x2(const Window *v, const float *plane, size_t first, float *y,
                             int32_t *chosen) {
    size_t i = 0;
    for (; i + 4 <= v->ow; i += 4) {
        const size_t at = first + 2 * i;
        FourFloats values[4], record;
        FourPlaces best;
        load_pairs(plane + at, &values[0], &values[1]);
        load_pairs(plane + at + v->w, &values[2], &values[3]);
        record =
            largest_of_2x2(values, (int32_t)v->w, (int32_t)at + (FourPlaces){0, 2, 4, 6}, &best);
        memcpy(y + i, &record, sizeof record);
        memcpy(chosen + i, &best, sizeof best);
    }
    if (i < v->ow) max_pool_rest(plane, (int32_t)v->w, first + 2 * i, v->ow - i, y + i, chosen + i);
}

static void cpu_max_pool(const Window *v, const float *x, float *y, int32_t *chosen) {
    check_pool(v);
    CHECK(v->h * v->w <= INT32_MAX, "a plane of %zu x %zu", v->h, v->w);
    size_t out = 0;
    bool is_common = v->kernel == 2 && v->stride == 2 && v->pad == 0;
    for (size_t i = 0; i < v->n * v->c; i++) {
        const float *plane = x + i * v->h * v->w;
        for (size_t row = 0; is_common && row < v->oh; row++, out += v->ow)
            max_pool_row_2x2(v, plane, 2 * row * v->w, y + out, chosen + out);
        for (size_t row = 0; !is_common && row < v->oh; row++)
            for (size_t column = 0; column < v->ow; column++, out++) {
                size_t best =
                    largest(plane, v->w, pool_range(v, row, v->h), pool_range(v, column, v->w));
                y[out] = plane[best];
                chosen[out] = (int32_t)best;
            }
    }
}

static void cpu_max_pool_gradient(const Window *v, const int32_t *chosen, const float *dy,
                                  float *dx, bool accumulate) {
    size_t plane = v->oh * v->ow;
    if (!accumulate) memset(dx, 0, v->n * v->c * v->h * v->w * sizeof *dx);
    for (size_t i = 0; i < v->n * v->c; i++)
        for (size_t j = 0; j < plane; j++)
            dx[i * v->h * v->w + (size_t)chosen[i * plane + j]] += dy[i * plane + j];
}

static void cpu_avg_pool(const Window *v, const float *x, float *y) {
    check_pool(v);
    double area = (double)(v->kernel * v->kernel);
    size_t out = 0;
    for (size_t i = 0; i < v->n * v->c; i++) {
        const float *plane = x + i * v->h * v->w;
        for (size_t row = 0; row < v->oh; row++)
            for (size_t column = 0; column < v->ow; column++, out++) {
                Range rows = pool_range(v, row, v->h), columns = pool_range(v, column, v->w);
                double sum = 0;
                for (size_t j = rows.begin; j < rows.end; j++)
                    for (size_t k = columns.begin; k < columns.end; k++)
                        sum += (double)plane[j * v->w + k];
                y[out] = (float)(sum / area);
            }
    }
}

static void cpu_avg_pool_gradient(const Window *v, const float *dy, float *dx, bool accumulate) {
    check_pool(v);
    float share = 1.0f / (float)(v->kernel * v->kernel);
    if (!accumulate) memset(dx, 0, v->n * v->c * v->h * v->w * sizeof *dx);
    size_t out = 0;
    for (size_t i = 0; i < v->n * v->c; i++) {
        float *plane = dx + i * v->h * v->w;
        for (size_t row = 0; row < v->oh; row++)
            for (size_t column = 0; column < v->ow; column++, out++) {
                Range rows = pool_range(v, row, v->h), columns = pool_range(v, column, v->w);
                float gradient = dy[out] * share;
                for (size_t j = rows.begin; j < rows.end; j++)
                    for (size_t k = columns.begin; k < columns.end; k++)
                        plane[j * v->w + k] += gradient;
            }
    }
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
