/* norm.c: the definition of batch norm over x[n, c, inner]: in one go, and in the steps between
 * which ranks talk.
 */
#include <math.h>

#include "common/device/ref/kernels.h"

// The index of x[i, channel, j].
static size_t at(const BatchNorm *norm, size_t i, size_t channel, size_t j) {
    return (i * norm->c + channel) * norm->inner + j;
}

static double count_of(const BatchNorm *norm) { // elements per channel
    return (double)(norm->n * norm->inner);
}

static double channel_mean(const BatchNorm *norm, size_t channel) {
    double sum = 0;
    for (size_t i = 0; i < norm->n; i++)
        for (size_t j = 0; j < norm->inner; j++) sum += (double)norm->x[at(norm, i, channel, j)];
    return sum / count_of(norm);
}

static double channel_squares(const BatchNorm *norm, size_t channel, double mean) {
    double sum = 0;
    for (size_t i = 0; i < norm->n; i++)
        for (size_t j = 0; j < norm->inner; j++)
            sum += pow((double)norm->x[at(norm, i, channel, j)] - mean, 2);
    return sum;
}

// y = (x - mean) invstd weight + bias
static void channel_normalize(const BatchNorm *norm, float *y, size_t channel, double mean,
                              double invstd) {
    for (size_t i = 0; i < norm->n; i++)
        for (size_t j = 0; j < norm->inner; j++) {
            size_t index = at(norm, i, channel, j);
            double normal = ((double)norm->x[index] - mean) * invstd;
            y[index] =
                (float)(normal * (double)norm->weight[channel] + (double)norm->bias[channel]);
        }
}

// Stores a channel's mean and invstd, and updates the running statistics. squares: the sum of
// (x - mean)^2 over `count` elements. Returns invstd.
static double store_statistics(const BatchNorm *norm, size_t channel, double mean, double squares,
                               double count) {
    double invstd = 1 / sqrt(squares / count + (double)norm->eps), share = (double)norm->momentum;
    float *running_mean = &norm->running_mean[channel], *running_var = &norm->running_var[channel];
    norm->mean[channel] = (float)mean;
    norm->invstd[channel] = (float)invstd;
    *running_mean = (float)((1 - share) * (double)*running_mean + share * mean);
    *running_var = (float)((1 - share) * (double)*running_var + share * squares / (count - 1));
    return invstd;
}

// y = relu(y + residual) if the norm has a relu
static void finish(const BatchNorm *norm, float *y) {
    size_t count = norm->n * norm->c * norm->inner;
    if (norm->relu && norm->residual) ref_elementwise.add(y, y, norm->residual, count);
    if (norm->relu) ref_elementwise.activation(ACTIVATION_RELU, y, y, count, false);
}

static void ref_batch_norm(const BatchNorm *norm, float *y) {
    if (norm->num_batches_tracked) *norm->num_batches_tracked += 1;
    if (norm->n * norm->inner == 0) return;
    for (size_t i = 0; i < norm->c; i++) {
        double mean = channel_mean(norm, i), squares = channel_squares(norm, i, mean);
        double invstd = store_statistics(norm, i, mean, squares, count_of(norm));
        channel_normalize(norm, y, i, mean, invstd);
    }
    finish(norm, y);
}

static double eval_invstd(const BatchNorm *norm, size_t channel) {
    return 1 / sqrt((double)norm->running_var[channel] + (double)norm->eps);
}

static void ref_batch_norm_eval(const BatchNorm *norm, float *y) {
    for (size_t i = 0; i < norm->c; i++)
        channel_normalize(norm, y, i, (double)norm->running_mean[i], eval_invstd(norm, i));
    finish(norm, y);
}

// With normal = (x - mean) invstd: dbias = sum of dy, dweight = sum of dy normal. And with the
// statistics constant, dx = dy weight invstd. (dx may be NULL, dweight and dbias too.)
typedef struct ChannelGradient {
    double dweight, dbias;
} ChannelGradient;

static ChannelGradient channel_gradient(const BatchNorm *norm, const float *dy, size_t channel,
                                        double mean, double invstd) {
    ChannelGradient sums = {0, 0};
    for (size_t i = 0; i < norm->n; i++)
        for (size_t j = 0; j < norm->inner; j++) {
            size_t index = at(norm, i, channel, j);
            sums.dbias += (double)dy[index];
            sums.dweight += (double)dy[index] * ((double)norm->x[index] - mean) * invstd;
        }
    return sums;
}

static void store_parameters(const NormGradient *to, size_t channel, ChannelGradient sums) {
    if (to->dweight) ref_put(&to->dweight[channel], sums.dweight, to->add_dweight);
    if (to->dbias) ref_put(&to->dbias[channel], sums.dbias, to->add_dbias);
}

// The statistics depend on x too, so dx lacks the parts of dy along 1 and along normal:
// dx = weight invstd (dy - mean(dy) - normal mean(dy normal))
static void channel_project(const BatchNorm *norm, const float *dy, const NormGradient *to,
                            size_t channel, ChannelGradient sums, double count) {
    double invstd = (double)norm->invstd[channel];
    for (size_t i = 0; i < norm->n; i++)
        for (size_t j = 0; j < norm->inner; j++) {
            size_t index = at(norm, i, channel, j);
            double normal = ((double)norm->x[index] - (double)norm->mean[channel]) * invstd;
            double rest = (double)dy[index] - sums.dbias / count - normal * sums.dweight / count;
            ref_put(&to->dx[index], (double)norm->weight[channel] * invstd * rest, to->add_dx);
        }
}

static void ref_batch_norm_gradient(const BatchNorm *norm, float *dy, const NormGradient *to) {
    size_t all = norm->n * norm->c * norm->inner;
    if (norm->relu)
        ref_elementwise.activation_gradient(ACTIVATION_RELU, dy, norm->y, dy, all, false);
    for (size_t k = 0; k < norm->c; k++) {
        ChannelGradient sums =
            channel_gradient(norm, dy, k, (double)norm->mean[k], (double)norm->invstd[k]);
        store_parameters(to, k, sums);
        if (to->dx) channel_project(norm, dy, to, k, sums, count_of(norm));
    }
}

static void ref_batch_norm_eval_gradient(const BatchNorm *norm, const float *dy,
                                         const NormGradient *to) {
    for (size_t k = 0; k < norm->c; k++) {
        double scale = eval_invstd(norm, k);
        store_parameters(to, k,
                         channel_gradient(norm, dy, k, (double)norm->running_mean[k], scale));
        for (size_t i = 0; to->dx && i < norm->n; i++)
            for (size_t j = 0; j < norm->inner; j++) {
                size_t index = at(norm, i, k, j);
                ref_put(&to->dx[index], (double)dy[index] * (double)norm->weight[k] * scale,
                        to->add_dx);
            }
    }
}

// The functions for several ranks. rows: [ranks, 2c + 1].
static void ref_batch_norm_statistics(const BatchNorm *norm) {
    double count = count_of(norm);
    for (size_t i = 0; i < norm->c; i++) {
        double mean = count > 0 ? channel_mean(norm, i) : 0;
        double squares = channel_squares(norm, i, mean);
        norm->mean[i] = (float)mean;
        norm->invstd[i] = count > 0 ? (float)(1 / sqrt(squares / count + (double)norm->eps)) : 0;
    }
}

// The mean is that of the ranks' means, each weighted with its rank's count. The variance is the
// mean square of the distances from it: a rank's variance around its own mean, plus the square of
// that mean's distance.
static void ref_batch_norm_merge(const BatchNorm *norm, const float *rows, size_t ranks,
                                 double *all) {
    size_t row = 2 * norm->c + 1;
    double count = 0;
    for (size_t k = 0; k < ranks; k++) count += (double)rows[k * row + 2 * norm->c];
    for (size_t i = 0; count > 1 && i < norm->c; i++) {
        double average = 0, squares = 0;
        for (size_t k = 0; k < ranks; k++)
            average += (double)rows[k * row + 2 * norm->c] * (double)rows[k * row + i] / count;
        for (size_t k = 0; k < ranks; k++) {
            double part = (double)rows[k * row + 2 * norm->c];
            if (part == 0) continue;
            double variance = pow((double)rows[k * row + norm->c + i], -2) - (double)norm->eps;
            squares += part * (fmax(variance, 0) + pow((double)rows[k * row + i] - average, 2));
        }
        store_statistics(norm, i, average, squares, count);
    }
    *all = count;
}

static void ref_batch_norm_apply(const BatchNorm *norm, float *y) {
    for (size_t i = 0; i < norm->c; i++)
        channel_normalize(norm, y, i, (double)norm->mean[i], (double)norm->invstd[i]);
}

static void ref_batch_norm_gradient_sums(const BatchNorm *norm, const float *dy, float *sums,
                                         const NormGradient *to) {
    for (size_t k = 0; k < norm->c; k++) {
        ChannelGradient own = channel_gradient(norm, dy, k, (double)norm->mean[k], 1);
        sums[k] = (float)own.dbias;
        sums[norm->c + k] = (float)own.dweight;
        own.dweight *= (double)norm->invstd[k];
        store_parameters(to, k, own);
    }
}

static void ref_batch_norm_gradient_apply(const BatchNorm *norm, const float *dy, const float *sums,
                                          const double *count, const NormGradient *to) {
    for (size_t k = 0; k < norm->c; k++) {
        ChannelGradient all = {.dbias = (double)sums[k],
                               .dweight = (double)sums[norm->c + k] * (double)norm->invstd[k]};
        channel_project(norm, dy, to, k, all, *count);
    }
}

const NormKernels ref_norm = {
    .batch_norm = ref_batch_norm,
    .batch_norm_eval = ref_batch_norm_eval,
    .batch_norm_gradient = ref_batch_norm_gradient,
    .batch_norm_eval_gradient = ref_batch_norm_eval_gradient,
    .batch_norm_statistics = ref_batch_norm_statistics,
    .batch_norm_merge = ref_batch_norm_merge,
    .batch_norm_apply = ref_batch_norm_apply,
    .batch_norm_gradient_sums = ref_batch_norm_gradient_sums,
    .batch_norm_gradient_apply = ref_batch_norm_gradient_apply,
};
