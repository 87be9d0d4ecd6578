/* conv.c: the reference backend's sliding windows: convolution, shortcut, pooling.
 *
 * A convolution is one formula,
 *   y[i, k, oy, ox] = sum over c, ky, kx of weight[k, c, ky, kx] x[i, c, iy, ix]
 *   with iy = oy stride + ky - pad, ix = ox stride + kx - pad (x is 0 where that is outside),
 * and each gradient is the same sum over the same index tuples, collected by another of the three
 * tensors. So one loop over the tuples, `product`, computes all three.
 */
#include "common/device/ref/kernels.h"

#include "common/base/memory.h"

// The pixel of a channel's h*w plane that the window at output (oy, ox) covers at (ky, kx), or -1
// for padding.
static int64_t seen(const Window *v, size_t oy, size_t ox, size_t ky, size_t kx) {
    int64_t iy = (int64_t)(oy * v->stride + ky) - (int64_t)v->pad;
    int64_t ix = (int64_t)(ox * v->stride + kx) - (int64_t)v->pad;
    bool inside = iy >= 0 && iy < (int64_t)v->h && ix >= 0 && ix < (int64_t)v->w;
    return inside ? iy * (int64_t)v->w + ix : -1;
}

// ---- convolution -----------------------------------------------------------------------------

typedef enum ConvTensor { X, WEIGHT, Y, CONV_TENSORS } ConvTensor;

typedef struct ConvProduct {
    const Window *window;
    ConvTensor a, b, sum; // the operands and the output
} ConvProduct;

// Adds the products of one filter's tap (k, c, ky, kx) over one image to the sums of the output.
static void add_tap(ConvProduct of, size_t image, size_t tap, const HostProduct *p, double *sums) {
    const Window *v = of.window;
    size_t area = v->kernel * v->kernel, c = tap / area % v->c, k = tap / area / v->c;
    for (size_t oy = 0; oy < v->oh; oy++)
        for (size_t ox = 0; ox < v->ow; ox++) {
            int64_t pixel = seen(v, oy, ox, tap % area / v->kernel, tap % v->kernel);
            if (pixel < 0) continue;
            const size_t at[CONV_TENSORS] = {
                [X] = (image * v->c + c) * v->h * v->w + (size_t)pixel,
                [WEIGHT] = tap,
                [Y] = ((image * v->k + k) * v->oh + oy) * v->ow + ox,
            };
            sums[at[of.sum]] += (double)p->a[at[of.a]] * (double)p->b[at[of.b]];
        }
}

static void convolve(Precision precision, ConvProduct of, HostProduct operands) {
    const Window *v = of.window;
    ConvCounts n = host_conv_counts(v);
    const size_t count[CONV_TENSORS] = {[X] = n.x, [WEIGHT] = n.weight, [Y] = n.y};
    const HostCounts counts = {count[of.a], count[of.b], v->k, count[of.sum]};
    HostProduct p = host_begin(precision, counts, operands);
    double *sums = memory_zalloc((counts.c + 1) * sizeof *sums);
    for (size_t image = 0; image < v->n; image++)
        for (size_t tap = 0; tap < n.weight; tap++) add_tap(of, image, tap, &p, sums);
    for (size_t j = 0; j < counts.c; j++)
        ref_put(&p.c[j], sums[j] + (p.bias ? (double)p.bias[j / (v->oh * v->ow) % v->k] : 0),
                p.accumulate);
    free(sums);
    host_end(precision, counts, &p, operands.c, operands.accumulate);
}

static void ref_conv2d(Compute how, const Window *v, const float *x, const float *weight,
                       const float *bias, float *y) {
    convolve(how.precision, (ConvProduct){v, X, WEIGHT, Y},
             (HostProduct){x, weight, bias, y, false, how.workspace});
}

static void ref_conv2d_input_gradient(Compute how, const Window *v, const float *weight,
                                      const float *dy, float *dx, bool accumulate) {
    convolve(how.precision, (ConvProduct){v, WEIGHT, Y, X},
             (HostProduct){weight, dy, NULL, dx, accumulate, how.workspace});
}

static void ref_conv2d_weight_gradient(Compute how, const Window *v, const float *x,
                                       const float *dy, float *dweight, bool accumulate) {
    convolve(how.precision, (ConvProduct){v, X, Y, WEIGHT},
             (HostProduct){x, dy, NULL, dweight, accumulate, how.workspace});
}

static void ref_conv2d_bias_gradient(const Window *v, const float *dy, float *dbias,
                                     bool accumulate) {
    size_t plane = v->oh * v->ow;
    for (size_t k = 0; k < v->k; k++) {
        double sum = 0;
        for (size_t i = 0; i < v->n; i++)
            for (size_t j = 0; j < plane; j++) sum += (double)dy[(i * v->k + k) * plane + j];
        ref_put(&dbias[k], sum, accumulate);
    }
}

// ---- shortcut --------------------------------------------------------------------------------

static size_t outputs_of(const Window *v) {
    return v->n * v->k * v->oh * v->ow;
}

// The index in x of the pixel that output `out` of the shortcut copies, or -1: a channel of zeros.
static int64_t copied(const Window *v, size_t out) {
    size_t ox = out % v->ow, oy = out / v->ow % v->oh, k = out / v->ow / v->oh % v->k;
    size_t i = out / v->ow / v->oh / v->k, before = (v->k - v->c) / 2;
    if (k < before || k >= before + v->c) return -1;
    return (int64_t)(((i * v->c + k - before) * v->h + oy * v->stride) * v->w + ox * v->stride);
}

static void ref_shortcut(const Window *v, const float *x, float *y) {
    for (size_t out = 0; out < outputs_of(v); out++) {
        int64_t from = copied(v, out);
        y[out] = from < 0 ? 0 : x[from];
    }
}

static void clear(const Window *v, float *dx, bool accumulate) {
    for (size_t i = 0; !accumulate && i < v->n * v->c * v->h * v->w; i++) dx[i] = 0;
}

static void ref_shortcut_gradient(const Window *v, const float *dy, float *dx, bool accumulate) {
    clear(v, dx, accumulate);
    for (size_t out = 0; out < outputs_of(v); out++) {
        int64_t from = copied(v, out);
        if (from >= 0) dx[from] += dy[out];
    }
}

// ---- pooling ---------------------------------------------------------------------------------

// The index in x of the pixel that the window of output `out` covers at `tap`, or -1 for padding.
static int64_t pooled(const Window *v, size_t out, size_t tap) {
    int64_t pixel = seen(v, out / v->ow % v->oh, out % v->ow, tap / v->kernel, tap % v->kernel);
    return pixel < 0 ? -1 : (int64_t)(out / v->ow / v->oh * v->h * v->w) + pixel;
}

static void ref_max_pool(const Window *v, const float *x, float *y, int32_t *chosen) {
    for (size_t out = 0; out < outputs_of(v); out++) {
        int64_t best = -1;
        for (size_t tap = 0; tap < v->kernel * v->kernel; tap++) {
            int64_t pixel = pooled(v, out, tap);
            if (pixel >= 0 && (best < 0 || ref_beats(x[pixel], x[best]))) best = pixel;
        }
        CHECK(best >= 0, "kernel %zu, pad %zu: a window of padding only", v->kernel, v->pad);
        y[out] = x[best];
        chosen[out] = (int32_t)(best % (int64_t)(v->h * v->w));
    }
}

static void ref_max_pool_gradient(const Window *v, const int32_t *chosen, const float *dy,
                                  float *dx, bool accumulate) {
    clear(v, dx, accumulate);
    for (size_t out = 0; out < outputs_of(v); out++)
        dx[out / v->ow / v->oh * v->h * v->w + (size_t)chosen[out]] += dy[out];
}

static void ref_avg_pool(const Window *v, const float *x, float *y) {
    for (size_t out = 0; out < outputs_of(v); out++) {
        double sum = 0;
        for (size_t tap = 0; tap < v->kernel * v->kernel; tap++) {
            int64_t pixel = pooled(v, out, tap);
            if (pixel >= 0) sum += (double)x[pixel];
        }
        y[out] = (float)(sum / (double)(v->kernel * v->kernel));
    }
}

static void ref_avg_pool_gradient(const Window *v, const float *dy, float *dx, bool accumulate) {
    clear(v, dx, accumulate);
    for (size_t out = 0; out < outputs_of(v); out++)
        for (size_t tap = 0; tap < v->kernel * v->kernel; tap++) {
            int64_t pixel = pooled(v, out, tap);
            if (pixel >= 0) dx[pixel] += dy[out] / (float)(v->kernel * v->kernel);
        }
}

const ConvolutionKernels ref_convolution = {
    .conv2d_workspace = host_conv2d_workspace,
    .conv2d = ref_conv2d,
    .conv2d_input_gradient = ref_conv2d_input_gradient,
    .conv2d_weight_gradient = ref_conv2d_weight_gradient,
    .conv2d_bias_gradient = ref_conv2d_bias_gradient,
    .shortcut = ref_shortcut,
    .shortcut_gradient = ref_shortcut_gradient,
    .max_pool = ref_max_pool,
    .max_pool_gradient = ref_max_pool_gradient,
    .avg_pool = ref_avg_pool,
    .avg_pool_gradient = ref_avg_pool_gradient,
};
