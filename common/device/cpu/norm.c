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

// Sums of x - shift, and of its square.
KERNEL_CLONES static Sums channel_moments(Channel channel, const float *x, double shift) {
    Lanes sums[2] = {{0}}, squares[2] = {{0}}, centered;
    double sum = 0, square = 0;
    for (size_t i = 0; i < channel.n; i++) {
        const float *run = x + i * channel.stride;
        size_t j = 0;
        for (; j + LANES_ROUND <= channel.inner; j += LANES_ROUND)
            for (size_t half = 0; half < 2; half++) {
                lanes_load(&centered, run + j + half * LANES);
                centered -= shift;
                sums[half] += centered;
                squares[half] += centered * centered;
            }
        for (; j < channel.inner; j++) {
            double value = (double)run[j] - shift;
            sum += value;
            square += value * value;
        }
    }
    return (Sums){sum + lanes_sum(sums), square + lanes_sum(squares)};
}

// Sums of dy, and of dy (x - mean).
KERNEL_CLONES static Sums channel_products(Channel channel, const float *x, const float *dy,
                                           double mean) {
    Lanes sums[2] = {{0}}, products[2] = {{0}}, centered, gradient;
    double sum = 0, product = 0;
    for (size_t i = 0; i < channel.n; i++) {
        const float *run = x + i * channel.stride, *drun = dy + i * channel.stride;
        size_t j = 0;
        for (; j + LANES_ROUND <= channel.inner; j += LANES_ROUND)
            for (size_t half = 0; half < 2; half++) {
                lanes_load(&centered, run + j + half * LANES);
                lanes_load(&gradient, drun + j + half * LANES);
                centered -= mean;
                sums[half] += gradient;
                products[half] += gradient * centered;
            }
        for (; j < channel.inner; j++) {
            sum += (double)drun[j];
            product += (double)drun[j] * ((double)run[j] - mean);
        }
    }
    return (Sums){sum + lanes_sum(sums), product + lanes_sum(products)};
}

// y = (x - mean) scale + bias; may be in place
KERNEL_CLONES static void channel_normalize(Channel channel, const float *x, float *y, float mean,
                                            float scale, float bias) {
    for (size_t i = 0; i < channel.n; i++) {
        const float *run = x + i * channel.stride;
        float *out = y + i * channel.stride;
        KERNEL_INDEPENDENT
        for (size_t j = 0; j < channel.inner; j++) out[j] = (run[j] - mean) * scale + bias;
    }
}

// dx (+)= slope dy
KERNEL_CLONES static void channel_scale(Channel channel, const float *dy, float *dx, bool add,
                                        float slope) {
    for (size_t i = 0; i < channel.n; i++) {
        const float *drun = dy + i * channel.stride;
        float *out = dx + i * channel.stride;
        KERNEL_INDEPENDENT
        for (size_t j = 0; j < channel.inner; j++) {
            float gradient = slope * drun[j];
            out[j] = add ? out[j] + gradient : gradient;
        }
    }
}

// dx (+)= slope (dy - dy_mean - (x - mean) lean): the gradient without the two directions that the
// statistics took out, a shift of all x and a stretch about the mean.
KERNEL_CLONES static void channel_project(Channel channel, const float *x, const float *dy,
                                          float *dx, bool add, float mean, float slope,
                                          float dy_mean, float lean) {
    for (size_t i = 0; i < channel.n; i++) {
        const float *run = x + i * channel.stride, *drun = dy + i * channel.stride;
        float *out = dx + i * channel.stride;
        KERNEL_INDEPENDENT
        for (size_t j = 0; j < channel.inner; j++) {
            float gradient = slope * (drun[j] - dy_mean - (run[j] - mean) * lean);
            out[j] = add ? out[j] + gradient : gradient;
        }
    }
}

typedef struct Statistics {
    double mean, squares; // squares: the sum of (x - mean)^2
} Statistics;

static Statistics channel_statistics(Channel channel, const float *x, double count) {
    double shift = (double)x[0];
    Sums sums = channel_moments(channel, x, shift);
    double offset = sums.first / count; // of the mean from the shift
    double squares = sums.second - offset * sums.first;
    if (squares < 0) squares = 0; // by rounding, when all x are equal
    return (Statistics){shift + offset, squares};
}

static float inverse_std(double squares, double count, float eps) {
    return (float)(1 / sqrt(squares / count + (double)eps));
}

static void update_running(float *running, double value, float momentum) {
    *running = (float)((1 - (double)momentum) * (double)*running + (double)momentum * value);
}

void cpu_batch_norm(const float *x, const float *weight, const float *bias, float *y, float *mean,
                    float *invstd, float *running_mean, float *running_var, float momentum,
                    float eps, size_t n, size_t c, size_t inner) {
    if (n * inner == 0) return;
    Channel channel = {n, c * inner, inner};
    double count = (double)(n * inner);
    for (size_t i = 0; i < c; i++) {
        Statistics batch = channel_statistics(channel, x + i * inner, count);
        mean[i] = (float)batch.mean;
        invstd[i] = inverse_std(batch.squares, count, eps);
        update_running(&running_mean[i], batch.mean, momentum);
        update_running(&running_var[i], batch.squares / (count - 1), momentum); // unbiased
        channel_normalize(channel, x + i * inner, y + i * inner, mean[i], invstd[i] * weight[i],
                          bias[i]);
    }
}

static float eval_invstd(float running_var, float eps) {
    return (float)(1 / sqrt((double)running_var + (double)eps));
}

void cpu_batch_norm_eval(const float *x, const float *weight, const float *bias, float *y,
                         const float *running_mean, const float *running_var, float eps, size_t n,
                         size_t c, size_t inner) {
    Channel channel = {n, c * inner, inner};
    for (size_t i = 0; i < c; i++)
        channel_normalize(channel, x + i * inner, y + i * inner, running_mean[i],
                          eval_invstd(running_var[i], eps) * weight[i], bias[i]);
}

void cpu_batch_norm_gradient(const float *x, const float *dy, const float *weight,
                             const float *mean, const float *invstd, float *dx, bool add_dx,
                             float *dweight, bool add_dweight, float *dbias, bool add_dbias,
                             size_t n, size_t c, size_t inner) {
    Channel channel = {n, c * inner, inner};
    double count = (double)(n * inner);
    for (size_t i = 0; i < c; i++) {
        const float *xi = x + i * inner, *dyi = dy + i * inner;
        double scale = (double)invstd[i];
        Sums sums = channel_products(channel, xi, dyi, (double)mean[i]);
        if (dweight) kernel_store(&dweight[i], sums.second * scale, add_dweight);
        if (dbias) kernel_store(&dbias[i], sums.first, add_dbias);
        if (dx)
            channel_project(channel, xi, dyi, dx + i * inner, add_dx, mean[i],
                            invstd[i] * weight[i], (float)(sums.first / count),
                            (float)(sums.second * scale * scale / count));
    }
}

void cpu_batch_norm_eval_gradient(const float *x, const float *dy, const float *weight,
                                  const float *running_mean, const float *running_var, float eps,
                                  float *dx, bool add_dx, float *dweight, bool add_dweight,
                                  float *dbias, bool add_dbias, size_t n, size_t c, size_t inner) {
    Channel channel = {n, c * inner, inner};
    for (size_t i = 0; i < c; i++) {
        const float *dyi = dy + i * inner;
        float invstd = eval_invstd(running_var[i], eps);
        if (dweight || dbias) {
            Sums sums = channel_products(channel, x + i * inner, dyi, (double)running_mean[i]);
            if (dweight) kernel_store(&dweight[i], sums.second * (double)invstd, add_dweight);
            if (dbias) kernel_store(&dbias[i], sums.first, add_dbias);
        }
        if (dx) channel_scale(channel, dyi, dx + i * inner, add_dx, invstd * weight[i]);
    }
}

// ---- over several ranks -----------------------------------------------------------------------

void cpu_batch_norm_statistics(const float *x, float *mean, float *invstd, float eps, size_t n,
                               size_t c, size_t inner) {
    Channel channel = {n, c * inner, inner};
    double count = (double)(n * inner);
    for (size_t i = 0; i < c; i++) {
        mean[i] = invstd[i] = 0;
        if (count == 0) continue;
        Statistics batch = channel_statistics(channel, x + i * inner, count);
        mean[i] = (float)batch.mean;
        invstd[i] = inverse_std(batch.squares, count, eps);
    }
}

// Of one channel, rank by rank: what is known of the first n elements and what a rank says of its
// own give what is known of both (PyTorch's batch_norm_gather_stats, Chan's algorithm).
static Statistics merge_channel(const float *rows, size_t ranks, size_t c, size_t i, float eps) {
    Statistics all = {0, 0};
    double n = 0;
    for (size_t rank = 0; rank < ranks; rank++) {
        const float *row = rows + rank * (2 * c + 1);
        double mean = (double)row[i], invstd = (double)row[c + i], count = (double)row[2 * c];
        if (count < 1) continue;
        double squares = (1 / (invstd * invstd) - (double)eps) * count;
        if (squares < 0) squares = 0; // by rounding, when all x of the rank are equal
        double apart = all.mean - mean, factor = 1 / (n + count);
        all.squares += squares + apart * apart * n * count * factor;
        all.mean = n * factor * all.mean + count * factor * mean;
        n += count;
    }
    return all;
}

void cpu_batch_norm_merge(const float *rows, size_t ranks, float *mean, float *invstd,
                          float *running_mean, float *running_var, float momentum, float eps,
                          double *all_count, size_t c) {
    double count = 0;
    for (size_t rank = 0; rank < ranks; rank++) count += (double)rows[rank * (2 * c + 1) + 2 * c];
    for (size_t i = 0; count > 1 && i < c; i++) {
        Statistics all = merge_channel(rows, ranks, c, i, eps);
        mean[i] = (float)all.mean;
        invstd[i] = inverse_std(all.squares, count, eps);
        update_running(&running_mean[i], all.mean, momentum);
        update_running(&running_var[i], all.squares / (count - 1), momentum); // unbiased
    }
    *all_count = count;
}

void cpu_batch_norm_apply(const float *x, const float *weight, const float *bias, float *y,
                          const float *mean, const float *invstd, size_t n, size_t c,
                          size_t inner) {
    Channel channel = {n, c * inner, inner};
    for (size_t i = 0; i < c; i++)
        channel_normalize(channel, x + i * inner, y + i * inner, mean[i], invstd[i] * weight[i],
                          bias[i]);
}

void cpu_batch_norm_gradient_sums(const float *x, const float *dy, const float *mean,
                                  const float *invstd, float *sums, float *dweight,
                                  bool add_dweight, float *dbias, bool add_dbias, size_t n,
                                  size_t c, size_t inner) {
    Channel channel = {n, c * inner, inner};
    for (size_t i = 0; i < c; i++) {
        Sums own = channel_products(channel, x + i * inner, dy + i * inner, (double)mean[i]);
        sums[i] = (float)own.first;
        sums[c + i] = (float)own.second;
        if (dweight) kernel_store(&dweight[i], own.second * (double)invstd[i], add_dweight);
        if (dbias) kernel_store(&dbias[i], own.first, add_dbias);
    }
}

void cpu_batch_norm_gradient_apply(const float *x, const float *dy, const float *weight,
                                   const float *mean, const float *invstd, const float *sums,
                                   const double *count, float *dx, bool add_dx, size_t n, size_t c,
                                   size_t inner) {
    Channel channel = {n, c * inner, inner};
    for (size_t i = 0; i < c; i++) {
        double scale = (double)invstd[i];
        channel_project(channel, x + i * inner, dy + i * inner, dx + i * inner, add_dx, mean[i],
                        invstd[i] * weight[i], (float)((double)sums[i] / *count),
                        (float)((double)sums[c + i] * scale * scale / *count));
    }
}
