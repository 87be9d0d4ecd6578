/* kernels_cpu_norm.c: the CPU backend's batch norm.
 *
 * Memory decides the speed, so the outer loop goes over channels: one channel of a batch (512 KiB
 * for 128 images of 32x32) stays in the core's L2 cache between the pass that measures it and the
 * pass that uses the measurement, and main memory is read and written once. Sums are in double, of
 * values from which a typical one has been subtracted first: so a large mean beside a small spread
 * costs no digits.
 */
#include "common/device/kernels_cpu.h"

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
        double shift = (double)x[i * inner];
        Sums sums = channel_moments(channel, x + i * inner, shift);
        double offset = sums.first / count; // of the mean from the shift
        double squares = sums.second - offset * sums.first;
        if (squares < 0) squares = 0; // by rounding, when all x are equal
        mean[i] = (float)(shift + offset);
        invstd[i] = (float)(1 / sqrt(squares / count + (double)eps));
        update_running(&running_mean[i], shift + offset, momentum);
        update_running(&running_var[i], squares / (count - 1), momentum); // unbiased
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
