/* kernels.c: the CPU backend's table, and those of its kernels that are one simple loop.
 *
 * All of these are bound by memory: each passes over its arrays once. What makes them fast on a
 * build for every x86-64 is in kernels.h (KERNEL_CLONES, KERNEL_INDEPENDENT, Lanes).
 * Matrix products, convolutions with pooling, batch norm, and what dense prediction needs have
 * files of their own.
 */
#include "common/device/cpu/kernels.h"

#include <math.h>
#include <string.h>

#include "common/device/kernels_host.h"

// ---- vectors -------------------------------------------------------------------------------

KERNEL_CLONES static void cpu_fill(float *y, float value, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = value;
}

KERNEL_CLONES static void cpu_add(float *y, const float *a, const float *b, size_t count) {
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

KERNEL_CLONES void cpu_accumulate(float *y, const float *x, size_t count) {
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < count; i++) y[i] += x[i];
}

KERNEL_CLONES static void cpu_scale(float *y, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] *= factor;
}

KERNEL_CLONES double cpu_sum(const float *x, size_t count) {
    Lanes sums[2] = {{0}}, values;
    double sum = 0;
    size_t i = 0;
    for (; i + LANES_ROUND <= count; i += LANES_ROUND)
        for (size_t half = 0; half < 2; half++) {
            lanes_load(&values, x + i + half * LANES);
            sums[half] += values;
        }
    for (; i < count; i++) sum += (double)x[i];
    return sum + lanes_sum(sums);
}

// Whether all numbers were finite: x - x is 0 for those, NaN for inf and NaN.
KERNEL_CLONES static bool scale_checked(float *y, float factor, size_t count) {
    float doubt = 0;
    for (size_t i = 0; i < count; i++) {
        doubt += y[i] - y[i];
        y[i] *= factor;
    }
    return doubt == 0;
}

static void cpu_unscale(const Slice *slices, size_t slice_count, float factor, float *not_finite) {
    for (size_t s = 0; s < slice_count; s++)
        if (!scale_checked(slices[s].data, factor, slices[s].count)) *not_finite = 1;
}

static void cpu_pack(float *y, const Slice *slices, size_t slice_count) {
    for (size_t s = 0; s < slice_count; y += slices[s].count, s++)
        if (slices[s].count) memcpy(y, slices[s].data, slices[s].count * sizeof *y);
}

static void cpu_unpack(const Slice *slices, size_t slice_count, const float *x) {
    for (size_t s = 0; s < slice_count; x += slices[s].count, s++)
        if (slices[s].count) memcpy(slices[s].data, x, slices[s].count * sizeof *x);
}

// A sum over the divisor; an empty batch has no mean, and a loss of 0.
static double quotient(double sum, double divisor) {
    return divisor > 0 ? sum / divisor : 0;
}

static void cpu_mean(const float *x, double divisor, float *y, size_t count) {
    *y = (float)quotient(cpu_sum(x, count), divisor);
}

static void cpu_spread(float *y, const float *x, double divisor, bool accumulate, size_t count) {
    float value = (float)quotient((double)*x, divisor);
    for (size_t i = 0; i < count; i++) y[i] = accumulate ? y[i] + value : value;
}

static void cpu_count_up(int64_t *counter) {
    *counter += 1;
}

// ---- beside the matrix product ---------------------------------------------------------------

enum { COLUMNS = 16 };

// Sums of up to COLUMNS neighbouring columns.
KERNEL_CLONES static void sum_columns(double sums[COLUMNS], const float *x, size_t rows,
                                      size_t stride, size_t columns) {
    for (size_t j = 0; j < COLUMNS; j++) sums[j] = 0;
    if (columns == COLUMNS) { // a count known to the compiler is a few vector additions
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < COLUMNS; j++) sums[j] += (double)x[i * stride + j];
    } else {
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < columns; j++) sums[j] += (double)x[i * stride + j];
    }
}

static void cpu_bias_gradient(float *dbias, const float *dy, size_t rows, size_t columns,
                              bool accumulate) {
    for (size_t first = 0; first < columns; first += COLUMNS) {
        size_t width = columns - first < COLUMNS ? columns - first : COLUMNS;
        double sums[COLUMNS];
        sum_columns(sums, dy + first, rows, columns, width);
        for (size_t j = 0; j < width; j++) kernel_store(&dbias[first + j], sums[j], accumulate);
    }
}

// ---- pointwise -------------------------------------------------------------------------------

KERNEL_CLONES static void cpu_relu(float *y, const float *x, size_t count) {
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < count; i++) y[i] = x[i] < 0 ? 0 : x[i]; // NaN < 0 is false: it stays
}

KERNEL_CLONES static void cpu_relu_gradient(float *dx, const float *y, const float *dy,
                                            size_t count, bool accumulate) {
    if (accumulate) {
        KERNEL_INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            float gradient = dy[i]; // read in any case: a load under a condition is not vectorised
            dx[i] += y[i] > 0 ? gradient : 0;
        }
    } else {
        KERNEL_INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            float gradient = dy[i];
            dx[i] = y[i] > 0 ? gradient : 0;
        }
    }
}

// ---- losses ----------------------------------------------------------------------------------

// The row's largest value. A NaN need not be found: it reaches the sum of exponentials by itself.
static float row_max(const float *row, size_t count) {
    float max = row[0];
    for (size_t j = 1; j < count; j++)
        if (row[j] > max) max = row[j];
    return max;
}

static void cpu_cross_entropy(const float *logits, const int64_t *target, double divisor,
                              float *probabilities, float *loss, size_t n, size_t classes) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const float *row = logits + i * classes;
        float *p = probabilities + i * classes;
        float max = row_max(row, classes); // subtracted, so that no exponential overflows
        for (size_t j = 0; j < classes; j++) p[j] = expf(row[j] - max);
        double total = cpu_sum(p, classes);
        for (size_t j = 0; j < classes; j++) p[j] = (float)((double)p[j] / total);
        bool is_class = target[i] >= 0 && (uint64_t)target[i] < classes;
        sum += is_class ? log(total) - ((double)row[target[i]] - (double)max) : (double)NAN;
    }
    *loss = (float)quotient(sum, divisor);
}

static void cpu_cross_entropy_gradient(const float *probabilities, const int64_t *target,
                                       const float *upstream, double divisor, float *dlogits,
                                       bool accumulate, size_t n, size_t classes) {
    float scale = (float)quotient((double)*upstream, divisor);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < classes; j++) {
            float onehot = (size_t)target[i] == j ? 1.0f : 0.0f;
            float gradient = (probabilities[i * classes + j] - onehot) * scale;
            float *place = &dlogits[i * classes + j];
            *place = accumulate ? *place + gradient : gradient;
        }
}

KERNEL_CLONES static double sum_squares(const float *x, const float *target, size_t count) {
    Lanes sums[2] = {{0}}, values, wanted;
    double sum = 0;
    size_t i = 0;
    for (; i + LANES_ROUND <= count; i += LANES_ROUND)
        for (size_t half = 0; half < 2; half++) {
            lanes_load(&values, x + i + half * LANES);
            lanes_load(&wanted, target + i + half * LANES);
            values -= wanted;
            sums[half] += values * values;
        }
    for (; i < count; i++) {
        double difference = (double)x[i] - (double)target[i];
        sum += difference * difference;
    }
    return sum + lanes_sum(sums);
}

static void cpu_squared_error(const float *x, const float *target, double divisor, float *loss,
                              size_t count) {
    *loss = (float)quotient(sum_squares(x, target, count), divisor);
}

KERNEL_CLONES static void cpu_squared_error_gradient(const float *x, const float *target,
                                                     const float *upstream, double divisor,
                                                     float *dx, bool accumulate, size_t count) {
    float scale = (float)quotient((double)*upstream, divisor);
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        float gradient = 2 * (x[i] - target[i]) * scale;
        dx[i] = accumulate ? dx[i] + gradient : gradient;
    }
}

// The weight of a "yes" in the column that `index` is in.
static float pos_weight(const Answers *answers, size_t index) {
    return answers->pos_weight ? answers->pos_weight[index % answers->classes] : 1;
}

static void cpu_binary_cross_entropy(const Answers *answers, double divisor, float *loss) {
    double sum = 0;
    for (size_t i = 0; i < answers->n * answers->classes; i++) {
        float x = answers->logits[i], t = answers->target[i];
        // log(1 + exp(-x)); a NaN among the logits reaches the sum by itself
        float softplus = (x < 0 ? -x : 0) + log1pf(expf(-fabsf(x)));
        float weight = 1 + (pos_weight(answers, i) - 1) * t;
        sum += (double)((1 - t) * x) + (double)(weight * softplus);
    }
    *loss = (float)quotient(sum, divisor);
}

static void cpu_binary_cross_entropy_gradient(const Answers *answers, double divisor,
                                              const float *upstream, float *dlogits,
                                              bool accumulate) {
    float scale = (float)quotient((double)*upstream, divisor);
    for (size_t i = 0; i < answers->n * answers->classes; i++) {
        float p = pos_weight(answers, i), t = answers->target[i];
        float sigmoid = 1 / (1 + expf(-answers->logits[i]));
        float gradient = ((1 + (p - 1) * t) * sigmoid - p * t) * scale;
        dlogits[i] = accumulate ? dlogits[i] + gradient : gradient;
    }
}

static void cpu_one_hot(const int64_t *labels, float *y, size_t n, size_t classes) {
    for (size_t i = 0; i < n; i++) {
        bool is_class = labels[i] >= 0 && (uint64_t)labels[i] < classes;
        for (size_t j = 0; j < classes; j++) y[i * classes + j] = is_class ? 0 : NAN;
        if (is_class) y[i * classes + (size_t)labels[i]] = 1;
    }
}

static void cpu_count_correct(const float *logits, const int64_t *target, int64_t *correct,
                              size_t n, size_t classes) {
    *correct = 0;
    for (size_t i = 0; i < n; i++) {
        if (target[i] < 0 || (uint64_t)target[i] >= classes) continue;
        const float *row = logits + i * classes;
        size_t label = (size_t)target[i];
        bool largest = row[label] == row[label]; // false for NaN, as are all comparisons below
        for (size_t j = 0; j < label; j++) largest = largest && row[j] < row[label];
        for (size_t j = label; j < classes; j++) largest = largest && row[j] <= row[label];
        *correct += largest;
    }
}

// ---- optimizers ------------------------------------------------------------------------------

KERNEL_CLONES static void sgd_plain(const SgdConfig *config, const SgdTensor *t) {
    float *weight = t->weight, lr = t->scalars[SCALAR_LR], weight_decay = config->weight_decay;
    const float *gradient = t->gradient;
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < t->count; i++)
        weight[i] -= lr * (gradient[i] + weight_decay * weight[i]);
}

KERNEL_CLONES static void sgd_momentum(const SgdConfig *config, const SgdTensor *t) {
    float *weight = t->weight, *velocity = t->velocity, lr = t->scalars[SCALAR_LR];
    float momentum = config->momentum, weight_decay = config->weight_decay;
    const float *gradient = t->gradient;
    bool nesterov = config->nesterov, first = t->first;
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < t->count; i++) {
        float g = gradient[i] + weight_decay * weight[i];
        float v = momentum * velocity[i] + g;
        if (first) v = g; // not 0 * velocity + g: what was there may be NaN
        velocity[i] = v;
        weight[i] -= lr * (nesterov ? g + momentum * v : v);
    }
}

static void cpu_sgd(const SgdConfig *config, const SgdTensor *tensors, size_t tensor_count) {
    for (size_t t = 0; t < tensor_count; t++)
        if (config->momentum == 0)
            sgd_plain(config, &tensors[t]);
        else
            sgd_momentum(config, &tensors[t]);
}

KERNEL_CLONES static void adam_step(const AdamConfig *config, const AdamTensor *t) {
    float *weight = t->weight, *exp_avg = t->exp_avg, *exp_avg_sq = t->exp_avg_sq;
    const float *gradient = t->gradient;
    float keep = t->scalars[SCALAR_KEEP], step_size = t->scalars[SCALAR_STEP_SIZE];
    float bias_correction = t->scalars[SCALAR_BIAS_CORRECTION];
    float new1 = (float)(1 - (double)config->beta1), new2 = (float)(1 - (double)config->beta2);
    float keep2 = config->beta2, eps = config->eps, weight_decay = config->weight_decay;
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < t->count; i++) {
        float g = gradient[i] + weight_decay * weight[i];
        float m = exp_avg[i] + new1 * (g - exp_avg[i]);
        float v = keep2 * exp_avg_sq[i] + new2 * g * g;
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        float denominator = sqrtf(v) / bias_correction + eps;
        weight[i] = weight[i] * keep - step_size * (m / denominator);
    }
}

static void cpu_adam(const AdamConfig *config, const AdamTensor *tensors, size_t tensor_count) {
    for (size_t t = 0; t < tensor_count; t++) adam_step(config, &tensors[t]);
}

const Kernels kernels_cpu = {
    .name = "cpu",
    .host_memory = true,
    .describe = cpu_describe,
    .prepare = cpu_prepare,
    .fill = cpu_fill,
    .add = cpu_add,
    .accumulate = cpu_accumulate,
    .scale = cpu_scale,
    .unscale = cpu_unscale,
    .pack = cpu_pack,
    .unpack = cpu_unpack,
    .mean = cpu_mean,
    .spread = cpu_spread,
    .count_up = cpu_count_up,
    .narrow = host_narrow,
    .widen = host_widen,
    .matmul_workspace = cpu_matmul_workspace,
    .matmul = cpu_matmul,
    .linear = cpu_linear,
    .bias_gradient = cpu_bias_gradient,
    .conv2d_workspace = cpu_conv2d_workspace,
    .conv2d = cpu_conv2d,
    .conv2d_input_gradient = cpu_conv2d_input_gradient,
    .conv2d_weight_gradient = cpu_conv2d_weight_gradient,
    .conv2d_bias_gradient = cpu_conv2d_bias_gradient,
    .batch_norm = cpu_batch_norm,
    .batch_norm_eval = cpu_batch_norm_eval,
    .batch_norm_gradient = cpu_batch_norm_gradient,
    .batch_norm_eval_gradient = cpu_batch_norm_eval_gradient,
    .batch_norm_statistics = cpu_batch_norm_statistics,
    .batch_norm_merge = cpu_batch_norm_merge,
    .batch_norm_apply = cpu_batch_norm_apply,
    .batch_norm_gradient_sums = cpu_batch_norm_gradient_sums,
    .batch_norm_gradient_apply = cpu_batch_norm_gradient_apply,
    .relu = cpu_relu,
    .relu_gradient = cpu_relu_gradient,
    .shortcut = cpu_shortcut,
    .shortcut_gradient = cpu_shortcut_gradient,
    .upsample2x = cpu_upsample2x,
    .upsample2x_gradient = cpu_upsample2x_gradient,
    .max_pool = cpu_max_pool,
    .max_pool_gradient = cpu_max_pool_gradient,
    .avg_pool = cpu_avg_pool,
    .avg_pool_gradient = cpu_avg_pool_gradient,
    .cross_entropy = cpu_cross_entropy,
    .cross_entropy_gradient = cpu_cross_entropy_gradient,
    .squared_error = cpu_squared_error,
    .squared_error_gradient = cpu_squared_error_gradient,
    .binary_cross_entropy = cpu_binary_cross_entropy,
    .binary_cross_entropy_gradient = cpu_binary_cross_entropy_gradient,
    .one_hot = cpu_one_hot,
    .count_correct = cpu_count_correct,
    .pixel_cross_entropy = cpu_pixel_cross_entropy,
    .hard_pixels = cpu_hard_pixels,
    .pixel_cross_entropy_gradient = cpu_pixel_cross_entropy_gradient,
    .predict_pixels = cpu_predict_pixels,
    .sgd = cpu_sgd,
    .adam = cpu_adam,
};
