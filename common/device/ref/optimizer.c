/* optimizer.c: the definition of an optimizer's step. */
#include <math.h>

#include "common/device/ref/kernels.h"

// Element i of the step's gradient: with a peer, both gradients added in float32, as an all-reduce
// adds them.
static double gradient_at(const float *gradient, const OptimizerPeer *peer, size_t i) {
    if (!peer->gradient) return (double)gradient[i];
    return (double)((gradient[i] + peer->gradient[i]) * peer->factor);
}

// Copies the new weight of element i to the peer.
static void hand_over(const float *weight, const OptimizerPeer *peer, size_t i) {
    if (peer->weight) peer->weight[i] = weight[i];
}

static void store_copy(Precision precision, const float *weight, size_t count, uint16_t *copy) {
    if (copy) host_narrow(precision, copy, weight, count);
}

static void sgd_step(const SgdConfig *config, const SgdTensor *t, const OptimizerPeer *peer) {
    double lr = (double)t->scalars[SCALAR_LR], momentum = config->momentum;
    for (size_t i = 0; i < t->count; i++) {
        double g = gradient_at(t->gradient, peer, i);
        g += config->weight_decay * (double)t->weight[i];
        if (config->momentum != 0) {
            double v = t->first ? g : momentum * (double)t->velocity[i] + g;
            t->velocity[i] = (float)v;
            g = config->nesterov ? g + momentum * v : v;
        }
        t->weight[i] = (float)((double)t->weight[i] - lr * g);
        hand_over(t->weight, peer, i);
    }
}

static void ref_sgd(const SgdConfig *config, const SgdTensor *tensors, size_t tensor_count,
                    const OptimizerPeer *peer) {
    const OptimizerPeer none = {0};
    for (size_t t = 0; t < tensor_count; t++) {
        sgd_step(config, &tensors[t], peer ? peer : &none);
        store_copy(config->copies, tensors[t].weight, tensors[t].count, tensors[t].copy);
    }
}

static void adam_step(const AdamConfig *config, const AdamTensor *t, const OptimizerPeer *peer) {
    double beta1 = config->beta1, beta2 = config->beta2;
    // In AdamW the weight decays beside the gradient; in Adam the gradient contains the decay.
    double keep = (double)t->scalars[SCALAR_KEEP];
    double step_size = (double)t->scalars[SCALAR_STEP_SIZE];
    double correction = (double)t->scalars[SCALAR_BIAS_CORRECTION];
    for (size_t i = 0; i < t->count; i++) {
        double g = gradient_at(t->gradient, peer, i);
        g += config->weight_decay * (double)t->weight[i];
        double m = beta1 * (double)t->exp_avg[i] + (1 - beta1) * g;
        double v = beta2 * (double)t->exp_avg_sq[i] + (1 - beta2) * g * g;
        double w = keep * (double)t->weight[i];
        w -= step_size * m / (sqrt(v) / correction + config->eps);
        t->weight[i] = (float)w;
        t->exp_avg[i] = (float)m;
        t->exp_avg_sq[i] = (float)v;
        hand_over(t->weight, peer, i);
    }
}

static void ref_adam(const AdamConfig *config, const AdamTensor *tensors, size_t tensor_count,
                     const OptimizerPeer *peer) {
    const OptimizerPeer none = {0};
    for (size_t t = 0; t < tensor_count; t++) {
        adam_step(config, &tensors[t], peer ? peer : &none);
        store_copy(config->copies, tensors[t].weight, tensors[t].count, tensors[t].copy);
    }
}

const OptimizerKernels ref_optimizer = {
    .sgd = ref_sgd,
    .adam = ref_adam,
};
