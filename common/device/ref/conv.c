/* conv.c: the reference backend's sliding windows: convolution, shortcut, pooling.
 *
 * A convolution is one formula,
 *   y[i, k, oy, ox] = sum over c, ky, kx of weight[k, c, ky, kx] x[i, c, iy, ix]
 *   with iy = oy stride + ky - pad, ix = ox stride + kx - pad (x is 0 where that is outside),
 * and each gradient is the same sum over the same index tuples, collected by another of the three
 * tensors: each gradient below asks, for one of its elements, which tuples it takes part in.
 */
#include "common/device/ref/kernels.h"

#include <math.h>

#include "common/device/kernels_host.h"

// Which pixel of a channel's h*w plane the window at output (oy, ox) sees at (ky, kx), or -1 for
// padding.
static int64_t seen(const Window *v, size_t oy, size_t ox, size_t ky, size_t kx) {
    int64_t iy = (int64_t)(oy * v->stride + ky) - (int64_t)v->pad;
    int64_t ix = (int64_t)(ox * v->stride + kx) - (int64_t)v->pad;
    bool inside = iy >= 0 && iy < (int64_t)v->h && ix >= 0 && ix < (int64_t)v->w;
    return inside ? iy * (int64_t)v->w + ix : -1;
}

// ---- convolution -----------------------------------------------------------------------------

static size_t ref_conv2d_workspace(Precision precision, const Window *v) {
    ConvCounts counts = host_conv_counts(v);
    return host_room(precision, counts.x, counts.weight, v->k, counts.y);
}

// The sum over channels and window of one output element.
static double conv2d_at(const Window *v, const float *image, const float *filter, size_t oy,
                        size_t ox) {
    double sum = 0;
    for (size_t c = 0; c < v->c; c++)
        for (size_t ky = 0; ky < v->kernel; ky++)
            for (size_t kx = 0; kx < v->kernel; kx++) {
                int64_t pixel = seen(v, oy, ox, ky, kx);
                if (pixel >= 0)
                    sum += (double)image[c * v->h * v->w + (size_t)pixel] *
                           (double)filter[(c * v->kernel + ky) * v->kernel + kx];
            }
    return sum;
}

static void forward(const void *window, const float *x, const float *weight, const float *bias,
                    float *y, bool accumulate, void *workspace) {
    const Window *v = window;
    (void)accumulate;
    (void)workspace;
    size_t taps = v->c * v->kernel * v->kernel;
    for (size_t i = 0; i < v->n; i++)
        for (size_t k = 0; k < v->k; k++)
            for (size_t oy = 0; oy < v->oh; oy++)
                for (size_t ox = 0; ox < v->ow; ox++) {
                    double sum =
                        conv2d_at(v, x + i * v->c * v->h * v->w, weight + k * taps, oy, ox);
                    y[((i * v->k + k) * v->oh + oy) * v->ow + ox] =
                        (float)(sum + (bias ? (double)bias[k] : 0));
                }
}

static void ref_conv2d(Compute how, const Window *v, const float *x, const float *weight,
                       const float *bias, float *y) {
    ConvCounts counts = host_conv_counts(v);
    HostFactors factors = {v, x, weight, bias, counts.x, counts.weight, v->k, counts.y};
    host_product(how.precision, forward, factors, y, false, how.workspace);
}

// Which output row (or column) sees the input row at `tap` of its window, or -1: the inverse of the
// formula above. `padded` is the input row counted from the padding's edge.
static int64_t seen_by(const Window *v, size_t padded, size_t tap, size_t outputs) {
    if (padded < tap || (padded - tap) % v->stride != 0) return -1;
    size_t output = (padded - tap) / v->stride;
    return output < outputs ? (int64_t)output : -1;
}

// The sum of weight dy over all the outputs that see pixel (iy, ix) of channel c.
static double input_gradient_at(const Window *v, const float *weight, const float *dy, size_t c,
                                size_t iy, size_t ix) {
    double sum = 0;
    for (size_t k = 0; k < v->k; k++)
        for (size_t ky = 0; ky < v->kernel; ky++)
            for (size_t kx = 0; kx < v->kernel; kx++) {
                int64_t oy = seen_by(v, iy + v->pad, ky, v->oh);
                int64_t ox = seen_by(v, ix + v->pad, kx, v->ow);
                if (oy >= 0 && ox >= 0)
                    sum += (double)dy[(k * v->oh + (size_t)oy) * v->ow + (size_t)ox] *
                           (double)weight[((k * v->c + c) * v->kernel + ky) * v->kernel + kx];
            }
    return sum;
}

static void input_gradient(const void *window, const float *weight, const float *dy,
                           const float *bias, float *dx, bool accumulate, void *workspace) {
    const Window *v = window;
    (void)bias;
    (void)workspace;
    for (size_t i = 0; i < v->n; i++)
        for (size_t c = 0; c < v->c; c++)
            for (size_t iy = 0; iy < v->h; iy++)
                for (size_t ix = 0; ix < v->w; ix++) {
                    const float *image = dy + i * v->k * v->oh * v->ow;
                    ref_put(&dx[((i * v->c + c) * v->h + iy) * v->w + ix],
                            input_gradient_at(v, weight, image, c, iy, ix), accumulate);
                }
}

static void ref_conv2d_input_gradient(Compute how, const Window *v, const float *weight,
                                      const float *dy, float *dx, bool accumulate) {
    ConvCounts counts = host_conv_counts(v);
    HostFactors factors = {v, weight, dy, NULL, counts.weight, counts.y, 0, counts.x};
    host_product(how.precision, input_gradient, factors, dx, accumulate, how.workspace);
}

// The sum of dy x over all images and outputs for one weight.
static double weight_gradient_at(const Window *v, const float *x, const float *dy, size_t k,
                                 size_t c, size_t ky, size_t kx) {
    double sum = 0;
    for (size_t i = 0; i < v->n; i++)
        for (size_t oy = 0; oy < v->oh; oy++)
            for (size_t ox = 0; ox < v->ow; ox++) {
                int64_t pixel = seen(v, oy, ox, ky, kx);
                if (pixel >= 0)
                    sum += (double)dy[((i * v->k + k) * v->oh + oy) * v->ow + ox] *
                           (double)x[(i * v->c + c) * v->h * v->w + (size_t)pixel];
            }
    return sum;
}

static void weight_gradient(const void *window, const float *x, const float *dy, const float *bias,
                            float *dweight, bool accumulate, void *workspace) {
    const Window *v = window;
    (void)bias;
    (void)workspace;
    size_t index = 0;
    for (size_t k = 0; k < v->k; k++)
        for (size_t c = 0; c < v->c; c++)
            for (size_t ky = 0; ky < v->kernel; ky++)
                for (size_t kx = 0; kx < v->kernel; kx++, index++)
                    ref_put(&dweight[index], weight_gradient_at(v, x, dy, k, c, ky, kx),
                            accumulate);
}

static void ref_conv2d_weight_gradient(Compute how, const Window *v, const float *x,
                                       const float *dy, float *dweight, bool accumulate) {
    ConvCounts counts = host_conv_counts(v);
    HostFactors factors = {v, x, dy, NULL, counts.x, counts.y, 0, counts.weight};
    host_product(how.precision, weight_gradient, factors, dweight, accumulate, how.workspace);
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

// The channel of x that channel k of y copies, or -1 for one of zeros.
static int64_t shortcut_channel(const Window *v, size_t k) {
    int64_t c = (int64_t)k - (int64_t)((v->k - v->c) / 2);
    return c >= 0 && c < (int64_t)v->c ? c : -1;
}

static void ref_shortcut(const Window *v, const float *x, float *y) {
    for (size_t i = 0; i < v->n; i++)
        for (size_t k = 0; k < v->k; k++)
            for (size_t oy = 0; oy < v->oh; oy++)
                for (size_t ox = 0; ox < v->ow; ox++) {
                    int64_t c = shortcut_channel(v, k);
                    y[((i * v->k + k) * v->oh + oy) * v->ow + ox] =
                        c < 0 ? 0
                              : x[((i * v->c + (size_t)c) * v->h + oy * v->stride) * v->w +
                                  ox * v->stride];
                }
}

static void ref_shortcut_gradient(const Window *v, const float *dy, float *dx, bool accumulate) {
    for (size_t i = 0; !accumulate && i < v->n * v->c * v->h * v->w; i++) dx[i] = 0;
    for (size_t i = 0; i < v->n; i++)
        for (size_t k = 0; k < v->k; k++) {
            int64_t c = shortcut_channel(v, k);
            for (size_t oy = 0; c >= 0 && oy < v->oh; oy++)
                for (size_t ox = 0; ox < v->ow; ox++)
                    dx[((i * v->c + (size_t)c) * v->h + oy * v->stride) * v->w + ox * v->stride] +=
                        dy[((i * v->k + k) * v->oh + oy) * v->ow + ox];
        }
}

// ---- pooling ---------------------------------------------------------------------------------

// Is `value` to replace `best`? Larger, or the first NaN.
static bool beats(float value, float best) {
    return value > best || (isnan(value) && !isnan(best));
}

static int64_t largest(const Window *v, const float *plane, size_t oy, size_t ox) {
    int64_t best = -1;
    for (size_t ky = 0; ky < v->kernel; ky++)
        for (size_t kx = 0; kx < v->kernel; kx++) {
            int64_t pixel = seen(v, oy, ox, ky, kx);
            if (pixel >= 0 && (best < 0 || beats(plane[pixel], plane[best]))) best = pixel;
        }
    CHECK(best >= 0, "kernel %zu, pad %zu: a window of padding only", v->kernel, v->pad);
    return best;
}

static void ref_max_pool(const Window *v, const float *x, float *y, int32_t *chosen) {
    size_t out = 0;
    for (size_t i = 0; i < v->n * v->c; i++)
        for (size_t oy = 0; oy < v->oh; oy++)
            for (size_t ox = 0; ox < v->ow; ox++, out++) {
                const float *plane = x + i * v->h * v->w;
                int64_t best = largest(v, plane, oy, ox);
                y[out] = plane[best];
                chosen[out] = (int32_t)best;
            }
}

static void ref_max_pool_gradient(const Window *v, const int32_t *chosen, const float *dy,
                                  float *dx, bool accumulate) {
    for (size_t i = 0; !accumulate && i < v->n * v->c * v->h * v->w; i++) dx[i] = 0;
    size_t plane = v->oh * v->ow;
    for (size_t out = 0; out < v->n * v->c * plane; out++)
        dx[out / plane * v->h * v->w + (size_t)chosen[out]] += dy[out];
}

static void ref_avg_pool(const Window *v, const float *x, float *y) {
    size_t out = 0;
    for (size_t i = 0; i < v->n * v->c; i++)
        for (size_t oy = 0; oy < v->oh; oy++)
            for (size_t ox = 0; ox < v->ow; ox++, out++) {
                double sum = 0;
                for (size_t ky = 0; ky < v->kernel; ky++)
                    for (size_t kx = 0; kx < v->kernel; kx++) {
                        int64_t pixel = seen(v, oy, ox, ky, kx);
                        if (pixel >= 0) sum += (double)x[i * v->h * v->w + (size_t)pixel];
                    }
                y[out] = (float)(sum / (double)(v->kernel * v->kernel));
            }
}

static void ref_avg_pool_gradient(const Window *v, const float *dy, float *dx, bool accumulate) {
    for (size_t i = 0; !accumulate && i < v->n * v->c * v->h * v->w; i++) dx[i] = 0;
    size_t out = 0;
    for (size_t i = 0; i < v->n * v->c; i++)
        for (size_t oy = 0; oy < v->oh; oy++)
            for (size_t ox = 0; ox < v->ow; ox++, out++)
                for (size_t ky = 0; ky < v->kernel; ky++)
                    for (size_t kx = 0; kx < v->kernel; kx++) {
                        int64_t pixel = seen(v, oy, ox, ky, kx);
                        if (pixel >= 0)
                            dx[i * v->h * v->w + (size_t)pixel] +=
                                dy[out] / (float)(v->kernel * v->kernel);
                    }
}

const ConvolutionKernels ref_convolution = {
    .conv2d_workspace = ref_conv2d_workspace,
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
