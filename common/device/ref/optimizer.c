/* optimizer.c: the definition of an optimizer's step. */
#include <math.h>

#include "common/device/ref/kernels.h"

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
    // In AdamW the weight decays beside the gradient; in Adam the gradient contains the decay.
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

const OptimizerKernels ref_optimizer = {
    .sgd = ref_sgd,
    .adam = ref_adam,
};
