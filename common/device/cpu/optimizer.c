/* optimizer.c: the CPU backend's optimizers: one pass over a parameter and its state. */
#include <math.h>

#include "common/device/cpu/kernels.h"

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

const OptimizerKernels cpu_optimizer = {
    .sgd = cpu_sgd,
    .adam = cpu_adam,
};
