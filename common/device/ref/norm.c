/* norm.c: the definition of batch norm over x[n, c, inner]: in one go, and in the steps between
 * which ranks talk.
 */
#include <math.h>

#include "common/device/ref/kernels.h"

// The index of x[i, channel, j].
typedef struct Shape {
    size_t n, c, inner;
} Shape;

static size_t at(Shape shape, size_t i, size_t channel, size_t j) {
    return (i * shape.c + channel) * shape.inner + j;
}

static double channel_mean(Shape shape, const float *x, size_t channel) {
    double sum = 0;
    for (size_t i = 0; i < shape.n; i++)
        for (size_t j = 0; j < shape.inner; j++) sum += (double)x[at(shape, i, channel, j)];
    return sum / (double)(shape.n * shape.inner);
}

static double channel_squares(Shape shape, const float *x, size_t channel, double mean) {
    double sum = 0;
    for (size_t i = 0; i < shape.n; i++)
        for (size_t j = 0; j < shape.inner; j++)
            sum += pow((double)x[at(shape, i, channel, j)] - mean, 2);
    return sum;
}

// y = (x - mean) invstd weight + bias
static void channel_normalize(Shape shape, const float *x, float *y, size_t channel, double mean,
                              double invstd, float weight, float bias) {
    for (size_t i = 0; i < shape.n; i++)
        for (size_t j = 0; j < shape.inner; j++) {
            size_t index = at(shape, i, channel, j);
            double normal = ((double)x[index] - mean) * invstd;
            y[index] = (float)(normal * (double)weight + (double)bias);
        }
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
    Shape shape = {norm->n, norm->c, norm->inner};
    double count = (double)(norm->n * norm->inner), new = (double)norm->momentum;
    for (size_t i = 0; i < norm->c; i++) {
        double average = channel_mean(shape, norm->x, i);
        double squares = channel_squares(shape, norm->x, i, average);
        double inverse = 1 / sqrt(squares / count + (double)norm->eps);
        channel_normalize(shape, norm->x, y, i, average, inverse, norm->weight[i], norm->bias[i]);
        norm->mean[i] = (float)average;
        norm->invstd[i] = (float)inverse;
        ref_put(&norm->running_mean[i], (1 - new) * (double)norm->running_mean[i] + new *average,
                false);
        ref_put(&norm->running_var[i],
                (1 - new) * (double)norm->running_var[i] + new *squares / (count - 1), false);
    }
    finish(norm, y);
}

static void ref_batch_norm_eval(const BatchNorm *norm, float *y) {
    for (size_t i = 0; i < norm->c; i++)
        channel_normalize((Shape){norm->n, norm->c, norm->inner}, norm->x, y, i,
                          (double)norm->running_mean[i],
                          1 / sqrt((double)norm->running_var[i] + (double)norm->eps),
                          norm->weight[i], norm->bias[i]);
    finish(norm, y);
}

// With normal = (x - mean) invstd: dbias = sum of dy, dweight = sum of dy normal. And with the
// statistics constant, dx = dy weight invstd. (dx may be NULL, dweight and dbias too.)
typedef struct ChannelGradient {
    double dweight, dbias;
} ChannelGradient;

static ChannelGradient channel_gradient(Shape shape, const float *x, const float *dy,
                                        size_t channel, double mean, double invstd) {
    ChannelGradient sums = {0, 0};
    for (size_t i = 0; i < shape.n; i++)
        for (size_t j = 0; j < shape.inner; j++) {
            size_t index = at(shape, i, channel, j);
            sums.dbias += (double)dy[index];
            sums.dweight += (double)dy[index] * ((double)x[index] - mean) * invstd;
        }
    return sums;
}

// The statistics depend on x too, so dx lacks the parts of dy along 1 and along normal:
// dx = weight invstd (dy - mean(dy) - normal mean(dy normal))
static void channel_project(Shape shape, const float *x, const float *dy, float *dx, size_t channel,
                            double mean, double invstd, double weight, ChannelGradient sums,
                            double count, bool add_dx) {
    for (size_t i = 0; i < shape.n; i++)
        for (size_t j = 0; j < shape.inner; j++) {
            size_t index = at(shape, i, channel, j);
            double normal = ((double)x[index] - mean) * invstd;
            double rest = (double)dy[index] - sums.dbias / count - normal * sums.dweight / count;
            ref_put(&dx[index], weight * invstd * rest, add_dx);
        }
}

static void ref_batch_norm_gradient(const BatchNorm *norm, float *dy, const NormGradient *to) {
    size_t all = norm->n * norm->c * norm->inner;
    if (norm->relu)
        ref_elementwise.activation_gradient(ACTIVATION_RELU, dy, norm->y, dy, all, false);
    Shape shape = {norm->n, norm->c, norm->inner};
    double count = (double)(norm->n * norm->inner);
    for (size_t k = 0; k < norm->c; k++) {
        double scale = (double)norm->invstd[k];
        ChannelGradient sums =
            channel_gradient(shape, norm->x, dy, k, (double)norm->mean[k], scale);
        if (to->dweight) ref_put(&to->dweight[k], sums.dweight, to->add_dweight);
        if (to->dbias) ref_put(&to->dbias[k], sums.dbias, to->add_dbias);
        if (to->dx)
            channel_project(shape, norm->x, dy, to->dx, k, (double)norm->mean[k], scale,
                            (double)norm->weight[k], sums, count, to->add_dx);
    }
}

static void ref_batch_norm_eval_gradient(const BatchNorm *norm, const float *dy,
                                         const NormGradient *to) {
    Shape shape = {norm->n, norm->c, norm->inner};
    for (size_t k = 0; k < norm->c; k++) {
        double scale = 1 / sqrt((double)norm->running_var[k] + (double)norm->eps);
        ChannelGradient sums =
            channel_gradient(shape, norm->x, dy, k, (double)norm->running_mean[k], scale);
        if (to->dweight) ref_put(&to->dweight[k], sums.dweight, to->add_dweight);
        if (to->dbias) ref_put(&to->dbias[k], sums.dbias, to->add_dbias);
        for (size_t i = 0; to->dx && i < norm->n; i++)
            for (size_t j = 0; j < norm->inner; j++) {
                size_t index = at(shape, i, k, j);
                ref_put(&to->dx[index], (double)dy[index] * (double)norm->weight[k] * scale,
                        to->add_dx);
            }
    }
}

// What follows are the steps of a batch norm over several ranks. rows: [ranks, 2c + 1].
static void ref_batch_norm_statistics(const BatchNorm *norm) {
    Shape shape = {norm->n, norm->c, norm->inner};
    double count = (double)(norm->n * norm->inner);
    for (size_t i = 0; i < norm->c; i++) {
        double average = count > 0 ? channel_mean(shape, norm->x, i) : 0;
        double squares = channel_squares(shape, norm->x, i, average);
        norm->mean[i] = (float)average;
        norm->invstd[i] = count > 0 ? (float)(1 / sqrt(squares / count + (double)norm->eps)) : 0;
    }
}

// The mean is that of the ranks' means, each weighted with its rank's count. The variance is the
// mean square of the distances from it: a rank's variance around its own mean, plus the square of
// that mean's distance.
static void ref_batch_norm_merge(const BatchNorm *norm, const float *rows, size_t ranks,
                                 double *all) {
    size_t row = 2 * norm->c + 1;
    double count = 0, new = (double)norm->momentum;
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
        norm->mean[i] = (float)average;
        norm->invstd[i] = (float)(1 / sqrt(squares / count + (double)norm->eps));
        ref_put(&norm->running_mean[i], (1 - new) * (double)norm->running_mean[i] + new *average,
                false);
        ref_put(&norm->running_var[i],
                (1 - new) * (double)norm->running_var[i] + new *squares / (count - 1), false);
    }
    *all = count;
}

static void ref_batch_norm_apply(const BatchNorm *norm, float *y) {
    for (size_t i = 0; i < norm->c; i++)
        channel_normalize((Shape){norm->n, norm->c, norm->inner}, norm->x, y, i,
                          (double)norm->mean[i], (double)norm->invstd[i], norm->weight[i],
                          norm->bias[i]);
}

static void ref_batch_norm_gradient_sums(const BatchNorm *norm, const float *dy, float *sums,
                                         const NormGradient *to) {
    for (size_t k = 0; k < norm->c; k++) {
        ChannelGradient own = channel_gradient((Shape){norm->n, norm->c, norm->inner}, norm->x, dy,
                                               k, (double)norm->mean[k], 1);
        sums[k] = (float)own.dbias;
        sums[norm->c + k] = (float)own.dweight;
        if (to->dweight)
            ref_put(&to->dweight[k], own.dweight * (double)norm->invstd[k], to->add_dweight);
        if (to->dbias) ref_put(&to->dbias[k], own.dbias, to->add_dbias);
    }
}

static void ref_batch_norm_gradient_apply(const BatchNorm *norm, const float *dy, const float *sums,
                                          const double *count, const NormGradient *to) {
    Shape shape = {norm->n, norm->c, norm->inner};
    for (size_t k = 0; k < norm->c; k++) {
        double scale = (double)norm->invstd[k];
        ChannelGradient all = {.dbias = (double)sums[k],
                               .dweight = (double)sums[norm->c + k] * scale};
        channel_project(shape, norm->x, dy, to->dx, k, (double)norm->mean[k], scale,
                        (double)norm->weight[k], all, *count, to->add_dx);
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
