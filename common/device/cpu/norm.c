/* norm.c: the CPU backend's batch norm.
 *
 * Memory decides the speed, so the outer loop goes over channels: one channel of a batch (512 KiB
 * for 128 images of 32x32) stays in the core's L2 cache between the pass that measures it and the
 * pass that uses the measurement, and main memory is read and written once. Sums are in double, of
 * values from which a typical one has been subtracted first: so a large mean beside a small spread
 * costs no digits. (Where other ranks hold a part of the batch, the passes are functions of their
 * own: between them the ranks exchange what they measured.)
 */
#include "common/device/cpu/kernels.h"

#include <math.h>

// One channel of a batch: n runs of `inner` elements, `stride` apart.
typedef struct Channel {
    size_t n, stride, inner;
} Channel;

typedef struct Sums {
    double first, second;
} Sums;

// Sums of dy, and of dy (x - mean); if dy is NULL, of x - mean and of its square. Inline: each
// caller below gets a loop without that condition.
static inline Sums channel_sums(Channel channel, const float *x, const float *dy, double mean) {
    Lanes sums[2] = {{0}}, products[2] = {{0}}, centered, gradient;
    double sum = 0, product = 0;
    for (size_t i = 0; i < channel.n; i++) {
        const float *run = x + i * channel.stride, *drun = dy ? dy + i * channel.stride : NULL;
        size_t j = 0;
        for (; j + LANES_ROUND <= channel.inner; j += LANES_ROUND)
            for (size_t half = 0; half < 2; half++) {
                lanes_load(&centered, run + j + half * LANES);
                centered -= mean;
                gradient = centered;
                if (drun) lanes_load(&gradient, drun + j + half * LANES);
                sums[half] += gradient;
                products[half] += gradient * centered;
            }
        for (; j < channel.inner; j++) {
            double value = (double)run[j] - mean, slope = drun ? (double)drun[j] : value;
            sum += slope;
            product += slope * value;
        }
    }
    return (Sums){sum + lanes_sum(sums), product + lanes_sum(products)};
}

VECTORISED static Sums channel_moments(Channel channel, const float *x, double shift) {
    return channel_sums(channel, x, NULL, shift);
}

VECTORISED static Sums channel_products(Channel channel, const float *x, const float *dy,
                                        double mean) {
    return channel_sums(channel, x, dy, mean);
}

// y = (x - mean) scale + bias; may be in place
VECTORISED static void channel_normalize(Channel channel, const float *x, float *y, float mean,
                                         float scale, float bias) {
    for (size_t i = 0; i < channel.n; i++) {
        const float *run = x + i * channel.stride;
        float *out = y + i * channel.stride;
        INDEPENDENT
        for (size_t j = 0; j < channel.inner; j++) out[j] = (run[j] - mean) * scale + bias;
    }
}

// y = relu(y + residual) if the norm has a relu, while the channel is in the cache.
VECTORISED static void channel_finish(Channel channel, const BatchNorm *norm, size_t at, float *y) {
    for (size_t i = 0; norm->relu && i < channel.n; i++) {
        float *out = y + at + i * channel.stride;
        const float *more = norm->residual ? norm->residual + at + i * channel.stride : NULL;
        INDEPENDENT
        for (size_t j = 0; j < channel.inner; j++) {
            float value = more ? out[j] + more[j] : out[j];
            out[j] = value < 0 ? 0 : value; // a NaN stays
        }
    }
}

// dy = y > 0 ? dy : 0
VECTORISED static void channel_mask(Channel channel, const float *y, float *dy) {
    for (size_t i = 0; i < channel.n; i++) {
        const float *run = y + i * channel.stride;
        float *out = dy + i * channel.stride;
        INDEPENDENT
        for (size_t j = 0; j < channel.inner; j++) out[j] = run[j] > 0 ? out[j] : 0;
    }
}

// dx (+)= slope dy
VECTORISED static void channel_scale(Channel channel, const float *dy, float *dx, bool add,
                                     float slope) {
    for (size_t i = 0; i < channel.n; i++) {
        const float *drun = dy + i * channel.stride;
        float *out = dx + i * channel.stride;
        INDEPENDENT
        for (size_t j = 0; j < channel.inner; j++) {
            float gradient = slope * drun[j];
            out[j] = add ? out[j] + gradient : gradient;
        }
    }
}

// dx (+)= slope (dy - dy_mean - (x - mean) lean): the gradient without the two directions that the
// statistics took out, a shift of all x and a stretch about the mean.
VECTORISED static void channel_project(Channel channel, const float *x, const float *dy, float *dx,
                                       bool add, float mean, float slope, float dy_mean,
                                       float lean) {
    for (size_t i = 0; i < channel.n; i++) {
        const float *run = x + i * channel.stride, *drun = dy + i * channel.stride;
        float *out = dx + i * channel.stride;
        INDEPENDENT
        for (size_t j = 0; j < channel.inner; j++) {
            float gradient = slope * (drun[j] - dy_mean - (run[j] - mean) * lean);
            out[j] = add ? out[j] + gradient : gradient;
        }
    }
}

// ---- one channel of a norm ---------------------------------------------------------------------

static Channel channel_of(const BatchNorm *norm) {
    return (Channel){norm->n, norm->c * norm->inner, norm->inner};
}

static double count_of(const BatchNorm *norm) { // elements per channel
    return (double)(norm->n * norm->inner);
}

typedef struct Statistics {
    double mean, squares; // squares: the sum of (x - mean)^2
} Statistics;

static void store_statistics(const BatchNorm *norm, size_t i, Statistics of, double count) {
    norm->mean[i] = (float)of.mean;
    norm->invstd[i] = (float)(1 / sqrt(of.squares / count + (double)norm->eps));
}

static void update_running(float *running, double value, float momentum) {
    *running = (float)((1 - (double)momentum) * (double)*running + (double)momentum * value);
}

static void store_running(const BatchNorm *norm, size_t i, Statistics of, double count) {
    update_running(&norm->running_mean[i], of.mean, norm->momentum);
    update_running(&norm->running_var[i], of.squares / (count - 1), norm->momentum); // unbiased
}

// Computes the statistics of channel i and stores mean and invstd.
static Statistics measure(const BatchNorm *norm, size_t i) {
    const float *x = norm->x + i * norm->inner;
    double shift = (double)x[0];
    Sums sums = channel_moments(channel_of(norm), x, shift);
    double offset = sums.first / count_of(norm); // how far the mean lies from the shift
    double squares = sums.second - offset * sums.first;
    if (squares < 0) squares = 0; // rounding can do that when all x are equal
    Statistics of = {shift + offset, squares};
    store_statistics(norm, i, of, count_of(norm));
    return of;
}

static void normalize(const BatchNorm *norm, size_t i, float *y, float mean, float invstd) {
    size_t at = i * norm->inner;
    channel_normalize(channel_of(norm), norm->x + at, y + at, mean, invstd * norm->weight[i],
                      norm->bias[i]);
}

static float eval_invstd(const BatchNorm *norm, size_t i) {
    return (float)(1 / sqrt((double)norm->running_var[i] + (double)norm->eps));
}

// sums: of dy and of dy (x - mean), as below.
static void store_parameters(const NormGradient *to, size_t i, Sums sums, float invstd) {
    if (to->dweight) kernel_store(&to->dweight[i], sums.second * (double)invstd, to->add_dweight);
    if (to->dbias) kernel_store(&to->dbias[i], sums.first, to->add_dbias);
}

static void project(const BatchNorm *norm, size_t i, const float *dy, const NormGradient *to,
                    Sums sums, double count) {
    size_t at = i * norm->inner;
    double scale = (double)norm->invstd[i];
    channel_project(channel_of(norm), norm->x + at, dy + at, to->dx + at, to->add_dx, norm->mean[i],
                    norm->invstd[i] * norm->weight[i], (float)(sums.first / count),
                    (float)(sums.second * scale * scale / count));
}

// ---- on one rank --------------------------------------------------------------------------------

static void cpu_batch_norm(const BatchNorm *norm, float *y) {
    if (norm->num_batches_tracked) *norm->num_batches_tracked += 1;
    if (norm->n * norm->inner == 0) return;
    for (size_t i = 0; i < norm->c; i++) {
        store_running(norm, i, measure(norm, i), count_of(norm));
        normalize(norm, i, y, norm->mean[i], norm->invstd[i]);
        channel_finish(channel_of(norm), norm, i * norm->inner, y);
    }
}

static void cpu_batch_norm_eval(const BatchNorm *norm, float *y) {
    for (size_t i = 0; i < norm->c; i++) {
        normalize(norm, i, y, norm->running_mean[i], eval_invstd(norm, i));
        channel_finish(channel_of(norm), norm, i * norm->inner, y);
    }
}

static void cpu_batch_norm_gradient(const BatchNorm *norm, float *dy, const NormGradient *to) {
    for (size_t i = 0; i < norm->c; i++) {
        size_t at = i * norm->inner;
        if (norm->relu) channel_mask(channel_of(norm), norm->y + at, dy + at);
        Sums sums =
            channel_products(channel_of(norm), norm->x + at, dy + at, (double)norm->mean[i]);
        store_parameters(to, i, sums, norm->invstd[i]);
        if (to->dx) project(norm, i, dy, to, sums, count_of(norm));
    }
}

static void cpu_batch_norm_eval_gradient(const BatchNorm *norm, const float *dy,
                                         const NormGradient *to) {
    for (size_t i = 0; i < norm->c; i++) {
        size_t at = i * norm->inner;
        float invstd = eval_invstd(norm, i);
        if (to->dweight || to->dbias)
            store_parameters(to, i,
                             channel_products(channel_of(norm), norm->x + at, dy + at,
                                              (double)norm->running_mean[i]),
                             invstd);
        if (to->dx)
            channel_scale(channel_of(norm), dy + at, to->dx + at, to->add_dx,
                          invstd * norm->weight[i]);
    }
}

// ---- over several ranks -----------------------------------------------------------------------

static void cpu_batch_norm_statistics(const BatchNorm *norm) {
    for (size_t i = 0; i < norm->c; i++)
        if (norm->n * norm->inner > 0)
            measure(norm, i);
        else
            norm->mean[i] = norm->invstd[i] = 0;
}

// Merges the statistics of one channel, rank by rank: those of the first n elements and those that
// a rank reports of its own elements give those of both together (PyTorch's
// batch_norm_gather_stats, Chan's algorithm).
static Statistics merge_channel(const float *rows, size_t ranks, size_t c, size_t i, float eps) {
    Statistics all = {0, 0};
    double n = 0;
    for (size_t rank = 0; rank < ranks; rank++) {
        const float *row = rows + rank * (2 * c + 1);
        double mean = (double)row[i], invstd = (double)row[c + i], count = (double)row[2 * c];
        if (count < 1) continue;
        double squares = (1 / (invstd * invstd) - (double)eps) * count;
        if (squares < 0) squares = 0; // rounding can do that when all x of the rank are equal
        double apart = all.mean - mean, factor = 1 / (n + count);
        all.squares += squares + apart * apart * n * count * factor;
        all.mean = n * factor * all.mean + count * factor * mean;
        n += count;
    }
    return all;
}

static void cpu_batch_norm_merge(const BatchNorm *norm, const float *rows, size_t ranks,
                                 double *all_count) {
    double count = 0;
    for (size_t rank = 0; rank < ranks; rank++)
        count += (double)rows[rank * (2 * norm->c + 1) + 2 * norm->c];
    for (size_t i = 0; count > 1 && i < norm->c; i++) {
        Statistics all = merge_channel(rows, ranks, norm->c, i, norm->eps);
        store_statistics(norm, i, all, count);
        store_running(norm, i, all, count);
    }
    *all_count = count;
}

static void cpu_batch_norm_apply(const BatchNorm *norm, float *y) {
    for (size_t i = 0; i < norm->c; i++) normalize(norm, i, y, norm->mean[i], norm->invstd[i]);
}

static void cpu_batch_norm_gradient_sums(const BatchNorm *norm, const float *dy, float *sums,
                                         const NormGradient *to) {
    for (size_t i = 0; i < norm->c; i++) {
        size_t at = i * norm->inner;
        Sums own = channel_products(channel_of(norm), norm->x + at, dy + at, (double)norm->mean[i]);
        sums[i] = (float)own.first;
        sums[norm->c + i] = (float)own.second;
        store_parameters(to, i, own, norm->invstd[i]);
    }
}

static void cpu_batch_norm_gradient_apply(const BatchNorm *norm, const float *dy, const float *sums,
                                          const double *count, const NormGradient *to) {
    for (size_t i = 0; i < norm->c; i++)
        project(norm, i, dy, to, (Sums){(double)sums[i], (double)sums[norm->c + i]}, *count);
}

const NormKernels cpu_norm = {
    .batch_norm = cpu_batch_norm,
    .batch_norm_eval = cpu_batch_norm_eval,
    .batch_norm_gradient = cpu_batch_norm_gradient,
    .batch_norm_eval_gradient = cpu_batch_norm_eval_gradient,
    .batch_norm_statistics = cpu_batch_norm_statistics,
    .batch_norm_merge = cpu_batch_norm_merge,
    .batch_norm_apply = cpu_batch_norm_apply,
    .batch_norm_gradient_sums = cpu_batch_norm_gradient_sums,
    .batch_norm_gradient_apply = cpu_batch_norm_gradient_apply,
};
