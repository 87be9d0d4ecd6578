/* kernels.c: the definition of every operation, in plain C.
 *
 * This is the backend to read, and the one that tests compare others with: each kernel is its
 * formula with loops around it, sums are in double, and nothing here is shared with another
 * backend but rounding to 16 bits (kernels_host.h). It makes no attempt to be fast. Sliding windows
 * are in conv.c, what dense prediction needs in pixels.c.
 */
#include "common/device/ref/kernels.h"

#include "common/device/kernels_host.h"

#include <math.h>
#include <stdio.h>

static void ref_describe(char *buffer, size_t capacity) {
    snprintf(buffer, capacity, "plain C reference kernels");
}

static int ref_prepare(Error *err) {
    (void)err;
    return 0;
}

void ref_put(float *place, double value, bool accumulate) {
    *place = (float)(accumulate ? (double)*place + value : value);
}

// ---- vectors -------------------------------------------------------------------------------

static void ref_fill(float *y, float value, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = value;
}

static void ref_add(float *y, const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

static void ref_accumulate(float *y, const float *x, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = y[i] + x[i];
}

static void ref_scale(float *y, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = y[i] * factor;
}

static void ref_unscale(const Slice *slices, size_t slice_count, float factor, float *not_finite) {
    for (size_t s = 0; s < slice_count; s++)
        for (size_t i = 0; i < slices[s].count; i++) {
            if (!isfinite(slices[s].data[i])) *not_finite = 1;
            slices[s].data[i] *= factor;
        }
}

static void ref_pack(float *y, const Slice *slices, size_t slice_count) {
    for (size_t s = 0; s < slice_count; s++)
        for (size_t i = 0; i < slices[s].count; i++) *y++ = slices[s].data[i];
}

static void ref_unpack(const Slice *slices, size_t slice_count, const float *x) {
    for (size_t s = 0; s < slice_count; s++)
        for (size_t i = 0; i < slices[s].count; i++) slices[s].data[i] = *x++;
}

// A sum over the divisor; an empty batch has no mean, and a loss of 0.
static double quotient(double sum, double divisor) {
    return divisor > 0 ? sum / divisor : 0;
}

static void ref_mean(const float *x, double divisor, float *y, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i];
    *y = (float)quotient(sum, divisor);
}

static void ref_spread(float *y, const float *x, double divisor, bool accumulate, size_t count) {
    for (size_t i = 0; i < count; i++) ref_put(&y[i], quotient((double)*x, divisor), accumulate);
}

static void ref_count_up(int64_t *counter) {
    *counter += 1;
}

// ---- matrix product --------------------------------------------------------------------------

static void product(const void *matmul, const float *a, const float *b, const float *bias, float *c,
                    bool accumulate, void *workspace) {
    const MatmulShape *s = matmul;
    (void)workspace;
    for (size_t i = 0; i < s->m; i++)
        for (size_t j = 0; j < s->n; j++) {
            double sum = 0;
            for (size_t l = 0; l < s->k; l++)
                sum += (double)(s->transpose_a ? a[l * s->m + i] : a[i * s->k + l]) *
                       (double)(s->transpose_b ? b[j * s->k + l] : b[l * s->n + j]);
            ref_put(&c[i * s->n + j], sum + (bias ? (double)bias[j] : 0), accumulate);
        }
}

static size_t ref_matmul_workspace(Precision precision, size_t m, size_t n, size_t k) {
    return host_room(precision, m * k, k * n, n, m * n);
}

static void ref_matmul(Precision precision, bool transpose_a, bool transpose_b, size_t m, size_t n,
                       size_t k, const float *a, const float *b, float *c, bool accumulate,
                       void *workspace) {
    const MatmulShape shape = {transpose_a, transpose_b, m, n, k};
    HostFactors factors = {&shape, a, b, NULL, m * k, k * n, 0, m * n};
    host_product(precision, product, factors, c, accumulate, workspace);
}

static void ref_relu(float *y, const float *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (isnan(x[i]))
            y[i] = x[i];
        else
            y[i] = x[i] > 0 ? x[i] : 0;
    }
}

static void ref_linear(Precision precision, const float *x, const float *weight, const float *bias,
                       bool relu, float *y, size_t rows, size_t out, size_t in, void *workspace) {
    const MatmulShape shape = {false, true, rows, out, in};
    HostFactors factors = {&shape, x, weight, bias, rows * in, in * out, out, rows * out};
    host_product(precision, product, factors, y, false, workspace);
    if (relu) ref_relu(y, y, rows * out);
}

static void ref_bias_gradient(float *dbias, const float *dy, size_t rows, size_t columns,
                              bool accumulate) {
    for (size_t j = 0; j < columns; j++) {
        double sum = 0;
        for (size_t i = 0; i < rows; i++) sum += (double)dy[i * columns + j];
        ref_put(&dbias[j], sum, accumulate);
    }
}

// ---- batch norm: x[n, c, inner] --------------------------------------------------------------

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

static void ref_batch_norm(const float *x, const float *weight, const float *bias, float *y,
                           float *mean, float *invstd, float *running_mean, float *running_var,
                           float momentum, float eps, size_t n, size_t c, size_t inner) {
    if (n * inner == 0) return;
    Shape shape = {n, c, inner};
    double count = (double)(n * inner), new = (double)momentum;
    for (size_t i = 0; i < c; i++) {
        double average = channel_mean(shape, x, i);
        double squares = channel_squares(shape, x, i, average);
        double inverse = 1 / sqrt(squares / count + (double)eps);
        channel_normalize(shape, x, y, i, average, inverse, weight[i], bias[i]);
        mean[i] = (float)average;
        invstd[i] = (float)inverse;
        ref_put(&running_mean[i], (1 - new) * (double)running_mean[i] + new *average, false);
        ref_put(&running_var[i], (1 - new) * (double)running_var[i] + new *squares / (count - 1),
                false);
    }
}

static void ref_batch_norm_eval(const float *x, const float *weight, const float *bias, float *y,
                                const float *running_mean, const float *running_var, float eps,
                                size_t n, size_t c, size_t inner) {
    for (size_t i = 0; i < c; i++)
        channel_normalize((Shape){n, c, inner}, x, y, i, (double)running_mean[i],
                          1 / sqrt((double)running_var[i] + (double)eps), weight[i], bias[i]);
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

static void ref_batch_norm_gradient(const float *x, const float *dy, const float *weight,
                                    const float *mean, const float *invstd, float *dx, bool add_dx,
                                    float *dweight, bool add_dweight, float *dbias, bool add_dbias,
                                    size_t n, size_t c, size_t inner) {
    Shape shape = {n, c, inner};
    double count = (double)(n * inner);
    for (size_t k = 0; k < c; k++) {
        double scale = (double)invstd[k];
        ChannelGradient sums = channel_gradient(shape, x, dy, k, (double)mean[k], scale);
        if (dweight) ref_put(&dweight[k], sums.dweight, add_dweight);
        if (dbias) ref_put(&dbias[k], sums.dbias, add_dbias);
        if (dx)
            channel_project(shape, x, dy, dx, k, (double)mean[k], scale, (double)weight[k], sums,
                            count, add_dx);
    }
}

static void ref_batch_norm_eval_gradient(const float *x, const float *dy, const float *weight,
                                         const float *running_mean, const float *running_var,
                                         float eps, float *dx, bool add_dx, float *dweight,
                                         bool add_dweight, float *dbias, bool add_dbias, size_t n,
                                         size_t c, size_t inner) {
    Shape shape = {n, c, inner};
    for (size_t k = 0; k < c; k++) {
        double scale = 1 / sqrt((double)running_var[k] + (double)eps);
        ChannelGradient sums = channel_gradient(shape, x, dy, k, (double)running_mean[k], scale);
        if (dweight) ref_put(&dweight[k], sums.dweight, add_dweight);
        if (dbias) ref_put(&dbias[k], sums.dbias, add_dbias);
        for (size_t i = 0; dx && i < n; i++)
            for (size_t j = 0; j < inner; j++) {
                size_t index = at(shape, i, k, j);
                ref_put(&dx[index], (double)dy[index] * (double)weight[k] * scale, add_dx);
            }
    }
}

// The steps of a batch norm over several ranks. rows: [ranks, 2c + 1].
static void ref_batch_norm_statistics(const float *x, float *mean, float *invstd, float eps,
                                      size_t n, size_t c, size_t inner) {
    Shape shape = {n, c, inner};
    double count = (double)(n * inner);
    for (size_t i = 0; i < c; i++) {
        double average = count > 0 ? channel_mean(shape, x, i) : 0;
        double squares = channel_squares(shape, x, i, average);
        mean[i] = (float)average;
        invstd[i] = count > 0 ? (float)(1 / sqrt(squares / count + (double)eps)) : 0;
    }
}

// The mean of the means, each weighted with its rank's count; and the mean square of the distances
// from it: a rank's variance around its own mean, and that mean's distance.
static void ref_batch_norm_merge(const float *rows, size_t ranks, float *mean, float *invstd,
                                 float *running_mean, float *running_var, float momentum, float eps,
                                 double *all, size_t c) {
    size_t row = 2 * c + 1;
    double count = 0, new = (double)momentum;
    for (size_t k = 0; k < ranks; k++) count += (double)rows[k * row + 2 * c];
    for (size_t i = 0; count > 1 && i < c; i++) {
        double average = 0, squares = 0;
        for (size_t k = 0; k < ranks; k++)
            average += (double)rows[k * row + 2 * c] * (double)rows[k * row + i] / count;
        for (size_t k = 0; k < ranks; k++) {
            double part = (double)rows[k * row + 2 * c];
            if (part == 0) continue;
            double variance = pow((double)rows[k * row + c + i], -2) - (double)eps;
            squares += part * (fmax(variance, 0) + pow((double)rows[k * row + i] - average, 2));
        }
        mean[i] = (float)average;
        invstd[i] = (float)(1 / sqrt(squares / count + (double)eps));
        ref_put(&running_mean[i], (1 - new) * (double)running_mean[i] + new *average, false);
        ref_put(&running_var[i], (1 - new) * (double)running_var[i] + new *squares / (count - 1),
                false);
    }
    *all = count;
}

static void ref_batch_norm_apply(const float *x, const float *weight, const float *bias, float *y,
                                 const float *mean, const float *invstd, size_t n, size_t c,
                                 size_t inner) {
    for (size_t i = 0; i < c; i++)
        channel_normalize((Shape){n, c, inner}, x, y, i, (double)mean[i], (double)invstd[i],
                          weight[i], bias[i]);
}

static void ref_batch_norm_gradient_sums(const float *x, const float *dy, const float *mean,
                                         const float *invstd, float *sums, float *dweight,
                                         bool add_dweight, float *dbias, bool add_dbias, size_t n,
                                         size_t c, size_t inner) {
    for (size_t k = 0; k < c; k++) {
        ChannelGradient own = channel_gradient((Shape){n, c, inner}, x, dy, k, (double)mean[k], 1);
        sums[k] = (float)own.dbias;
        sums[c + k] = (float)own.dweight;
        if (dweight) ref_put(&dweight[k], own.dweight * (double)invstd[k], add_dweight);
        if (dbias) ref_put(&dbias[k], own.dbias, add_dbias);
    }
}

static void ref_batch_norm_gradient_apply(const float *x, const float *dy, const float *weight,
                                          const float *mean, const float *invstd, const float *sums,
                                          const double *count, float *dx, bool add_dx, size_t n,
                                          size_t c, size_t inner) {
    Shape shape = {n, c, inner};
    for (size_t k = 0; k < c; k++) {
        double scale = (double)invstd[k];
        ChannelGradient all = {.dbias = (double)sums[k], .dweight = (double)sums[c + k] * scale};
        channel_project(shape, x, dy, dx, k, (double)mean[k], scale, (double)weight[k], all, *count,
                        add_dx);
    }
}

// ---- pointwise -------------------------------------------------------------------------------

static void ref_relu_gradient(float *dx, const float *y, const float *dy, size_t count,
                              bool accumulate) {
    for (size_t i = 0; i < count; i++) ref_put(&dx[i], y[i] > 0 ? (double)dy[i] : 0, accumulate);
}

// ---- losses ----------------------------------------------------------------------------------

static bool is_class(int64_t target, size_t classes) {
    return target >= 0 && (uint64_t)target < classes;
}

static void ref_cross_entropy(const float *logits, const int64_t *target, double divisor,
                              float *probabilities, float *loss, size_t n, size_t classes) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const float *row = logits + i * classes;
        double max = (double)row[0], total = 0;
        for (size_t j = 0; j < classes; j++) max = fmax(max, (double)row[j]);
        for (size_t j = 0; j < classes; j++) total += exp((double)row[j] - max);
        for (size_t j = 0; j < classes; j++)
            probabilities[i * classes + j] = (float)(exp((double)row[j] - max) / total);
        sum +=
            is_class(target[i], classes) ? max + log(total) - (double)row[target[i]] : (double)NAN;
    }
    *loss = (float)quotient(sum, divisor);
}

static void ref_cross_entropy_gradient(const float *probabilities, const int64_t *target,
                                       const float *upstream, double divisor, float *dlogits,
                                       bool accumulate, size_t n, size_t classes) {
    double scale = (double)(float)quotient((double)*upstream, divisor);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < classes; j++) {
            size_t index = i * classes + j;
            double onehot = (size_t)target[i] == j ? 1 : 0;
            ref_put(&dlogits[index], ((double)probabilities[index] - onehot) * scale, accumulate);
        }
}

static void ref_squared_error(const float *x, const float *target, double divisor, float *loss,
                              size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += pow((double)x[i] - (double)target[i], 2);
    *loss = (float)quotient(sum, divisor);
}

static void ref_squared_error_gradient(const float *x, const float *target, const float *upstream,
                                       double divisor, float *dx, bool accumulate, size_t count) {
    double scale = (double)(float)quotient((double)*upstream, divisor);
    for (size_t i = 0; i < count; i++)
        ref_put(&dx[i], 2 * ((double)x[i] - (double)target[i]) * scale, accumulate);
}

static double pos_weight(const Answers *a, size_t index) {
    return a->pos_weight ? (double)a->pos_weight[index % a->classes] : 1;
}

static double softplus(double x) { // log(1 + exp(x)), without overflow
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static void ref_binary_cross_entropy(const Answers *a, double divisor, float *loss) {
    double sum = 0;
    for (size_t i = 0; i < a->n * a->classes; i++) {
        double x = (double)a->logits[i], t = (double)a->target[i], p = pos_weight(a, i);
        sum += (1 - t) * x + (1 + (p - 1) * t) * softplus(-x);
    }
    *loss = (float)quotient(sum, divisor);
}

static void ref_binary_cross_entropy_gradient(const Answers *a, double divisor,
                                              const float *upstream, float *dlogits,
                                              bool accumulate) {
    double scale = (double)(float)quotient((double)*upstream, divisor);
    for (size_t i = 0; i < a->n * a->classes; i++) {
        double x = (double)a->logits[i], t = (double)a->target[i], p = pos_weight(a, i);
        double sigmoid = 1 / (1 + exp(-x));
        ref_put(&dlogits[i], ((1 + (p - 1) * t) * sigmoid - p * t) * scale, accumulate);
    }
}

static void ref_one_hot(const int64_t *labels, float *y, size_t n, size_t classes) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < classes; j++)
            y[i * classes + j] = is_class(labels[i], classes) ? (size_t)labels[i] == j : NAN;
}

static void ref_count_correct(const float *logits, const int64_t *target, int64_t *correct,
                              size_t n, size_t classes) {
    *correct = 0;
    for (size_t i = 0; i < n; i++) {
        const float *row = logits + i * classes;
        size_t best = 0;
        bool numbers = true;
        for (size_t j = 0; j < classes; j++) {
            if (row[j] > row[best]) best = j;
            if (isnan(row[j])) numbers = false;
        }
        if (numbers && best == (size_t)target[i]) *correct += 1;
    }
}

// ---- optimizers ------------------------------------------------------------------------------

static void sgd_step(const SgdConfig *config, const SgdTensor *t) {
    double lr = (double)t->scalars[SCALAR_LR], momentum = (double)config->momentum;
    for (size_t i = 0; i < t->count; i++) {
        double g = (double)t->gradient[i] + (double)config->weight_decay * (double)t->weight[i];
        if (config->momentum != 0) {
            double v = t->first ? g : momentum * (double)t->velocity[i] + g;
            t->velocity[i] = (float)v;
            g = config->nesterov ? g + momentum * v : v;
        }
        t->weight[i] = (float)((double)t->weight[i] - lr * g);
    }
}

static void ref_sgd(const SgdConfig *config, const SgdTensor *tensors, size_t tensor_count) {
    for (size_t t = 0; t < tensor_count; t++) sgd_step(config, &tensors[t]);
}

static void adam_step(const AdamConfig *config, const AdamTensor *t) {
    double beta1 = (double)config->beta1, beta2 = (double)config->beta2;
    // AdamW's W: the weight decays beside the gradient. In Adam the gradient contains the decay.
    double keep = (double)t->scalars[SCALAR_KEEP];
    double step_size = (double)t->scalars[SCALAR_STEP_SIZE];
    double correction = (double)t->scalars[SCALAR_BIAS_CORRECTION];
    for (size_t i = 0; i < t->count; i++) {
        double g = (double)t->gradient[i] + (double)config->weight_decay * (double)t->weight[i];
        double m = beta1 * (double)t->exp_avg[i] + (1 - beta1) * g;
        double v = beta2 * (double)t->exp_avg_sq[i] + (1 - beta2) * g * g;
        double w = keep * (double)t->weight[i];
        w -= step_size * m / (sqrt(v) / correction + (double)config->eps);
        t->weight[i] = (float)w;
        t->exp_avg[i] = (float)m;
        t->exp_avg_sq[i] = (float)v;
    }
}

static void ref_adam(const AdamConfig *config, const AdamTensor *tensors, size_t tensor_count) {
    for (size_t t = 0; t < tensor_count; t++) adam_step(config, &tensors[t]);
}

const Kernels kernels_ref = {
    .name = "ref",
    .host_memory = true,
    .describe = ref_describe,
    .prepare = ref_prepare,
    .fill = ref_fill,
    .add = ref_add,
    .accumulate = ref_accumulate,
    .scale = ref_scale,
    .unscale = ref_unscale,
    .pack = ref_pack,
    .unpack = ref_unpack,
    .mean = ref_mean,
    .spread = ref_spread,
    .count_up = ref_count_up,
    .narrow = host_narrow,
    .widen = host_widen,
    .matmul_workspace = ref_matmul_workspace,
    .matmul = ref_matmul,
    .linear = ref_linear,
    .bias_gradient = ref_bias_gradient,
    .conv2d_workspace = ref_conv2d_workspace,
    .conv2d = ref_conv2d,
    .conv2d_input_gradient = ref_conv2d_input_gradient,
    .conv2d_weight_gradient = ref_conv2d_weight_gradient,
    .conv2d_bias_gradient = ref_conv2d_bias_gradient,
    .batch_norm = ref_batch_norm,
    .batch_norm_eval = ref_batch_norm_eval,
    .batch_norm_gradient = ref_batch_norm_gradient,
    .batch_norm_eval_gradient = ref_batch_norm_eval_gradient,
    .batch_norm_statistics = ref_batch_norm_statistics,
    .batch_norm_merge = ref_batch_norm_merge,
    .batch_norm_apply = ref_batch_norm_apply,
    .batch_norm_gradient_sums = ref_batch_norm_gradient_sums,
    .batch_norm_gradient_apply = ref_batch_norm_gradient_apply,
    .relu = ref_relu,
    .relu_gradient = ref_relu_gradient,
    .shortcut = ref_shortcut,
    .shortcut_gradient = ref_shortcut_gradient,
    .upsample2x = ref_upsample2x,
    .upsample2x_gradient = ref_upsample2x_gradient,
    .max_pool = ref_max_pool,
    .max_pool_gradient = ref_max_pool_gradient,
    .avg_pool = ref_avg_pool,
    .avg_pool_gradient = ref_avg_pool_gradient,
    .cross_entropy = ref_cross_entropy,
    .cross_entropy_gradient = ref_cross_entropy_gradient,
    .squared_error = ref_squared_error,
    .squared_error_gradient = ref_squared_error_gradient,
    .binary_cross_entropy = ref_binary_cross_entropy,
    .binary_cross_entropy_gradient = ref_binary_cross_entropy_gradient,
    .one_hot = ref_one_hot,
    .count_correct = ref_count_correct,
    .pixel_cross_entropy = ref_pixel_cross_entropy,
    .hard_pixels = ref_hard_pixels,
    .pixel_cross_entropy_gradient = ref_pixel_cross_entropy_gradient,
    .predict_pixels = ref_predict_pixels,
    .sgd = ref_sgd,
    .adam = ref_adam,
};
