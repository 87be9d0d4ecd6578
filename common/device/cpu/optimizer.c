/* optimizer.c: the CPU backend's optimizers: one pass over a parameter and its state. What a loop
 * asks about the peer is the same in all iterations: the compiler makes a loop for each answer.
 */
#include <math.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "common/base/memory.h"
#include "common/device/cpu/kernels.h"

// Elements that a step with a peer takes at a time, and how far ahead of them it asks for memory.
enum { STRIDE = 64, AHEAD = 256 };

// Inlined into a function with momentum and one without, which has no velocity.
static inline void sgd_loop(const SgdConfig *config, const SgdTensor *t, const OptimizerPeer *peer,
                            bool remembers) {
    float *weight = t->weight, *velocity = t->velocity, lr = t->scalars[SCALAR_LR];
    float momentum = (float)config->momentum, weight_decay = (float)config->weight_decay;
    const float *gradient = t->gradient, *other = peer->gradient;
    float factor = peer->factor;
    bool nesterov = config->nesterov, first = t->first;
    INDEPENDENT
    for (size_t i = 0; i < t->count; i++) {
        float sum = other ? (gradient[i] + other[i]) * factor : gradient[i];
        float g = sum + weight_decay * weight[i];
        if (remembers) {
            float v = momentum * velocity[i] + g;
            if (first) v = g; // not 0 * velocity + g: velocity is undefined and may be NaN
            velocity[i] = v;
            g = nesterov ? g + momentum * v : v;
        }
        weight[i] = weight[i] - lr * g;
    }
}

VECTORISED static void sgd_step(const SgdConfig *config, const SgdTensor *t,
                                const OptimizerPeer *peer) {
    if (config->momentum == 0)
        sgd_loop(config, t, peer, false);
    else
        sgd_loop(config, t, peer, true);
}

VECTORISED static void adam_step(const AdamConfig *config, const AdamTensor *t,
                                 const OptimizerPeer *peer) {
    float *weight = t->weight, *exp_avg = t->exp_avg, *exp_avg_sq = t->exp_avg_sq;
    const float *gradient = t->gradient, *other = peer->gradient;
    float factor = peer->factor;
    float keep = t->scalars[SCALAR_KEEP], step_size = t->scalars[SCALAR_STEP_SIZE];
    float bias_correction = t->scalars[SCALAR_BIAS_CORRECTION];
    float new1 = (float)(1 - config->beta1), new2 = (float)(1 - config->beta2);
    float keep2 = (float)config->beta2, eps = (float)config->eps;
    float weight_decay = (float)config->weight_decay;
    INDEPENDENT
    for (size_t i = 0; i < t->count; i++) {
        float sum = other ? (gradient[i] + other[i]) * factor : gradient[i];
        float g = sum + weight_decay * weight[i];
        float m = exp_avg[i] + new1 * (g - exp_avg[i]);
        float v = keep2 * exp_avg_sq[i] + new2 * g * g;
        float denominator = sqrtf(v) / bias_correction + eps;
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        weight[i] = weight[i] * keep - step_size * (m / denominator);
    }
}

// Copies new weights to the peer's by streaming ("non-temporal") stores. This core will not read
// them again, so they go around its caches: a plain store would first fetch the lines that it is
// about to overwrite. `to` lies on 16 bytes, as parts of a bucket do.
static void stream_weights(float *to, const float *from, size_t count) {
    size_t i = 0;
#ifdef __SSE__
    for (; i + 4 <= count; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
#endif
    for (; i < count; i++) to[i] = from[i];
}

// Streaming stores become visible in any order. After this, all of them are.
static void stream_fence(void) {
#ifdef __SSE__
    _mm_sfence();
#endif
}

// Asks for the cache lines of elements [first, first + STRIDE). They may lie beyond the end: to ask
// for memory that is not there does nothing.
static void prefetch(const AdamTensor *t, const OptimizerPeer *peer, size_t first) {
    for (size_t i = first; i < first + STRIDE; i += MEMORY_ALIGNMENT / sizeof(float)) {
        __builtin_prefetch(t->gradient + i);
        if (peer->gradient) __builtin_prefetch(peer->gradient + i);
        __builtin_prefetch(t->exp_avg + i, 1);
        __builtin_prefetch(t->exp_avg_sq + i, 1);
        __builtin_prefetch(t->weight + i, 1);
    }
}

// Five streams of memory, one of them another process's: more than the processor foresees.
static void adam_with_peer(const AdamConfig *config, const AdamTensor *t,
                           const OptimizerPeer *peer) {
    for (size_t i = 0; i < t->count; i += STRIDE) {
        const AdamTensor part = {.weight = t->weight + i,
                                 .gradient = t->gradient + i,
                                 .exp_avg = t->exp_avg + i,
                                 .exp_avg_sq = t->exp_avg_sq + i,
                                 .scalars = t->scalars,
                                 .count = t->count - i < STRIDE ? t->count - i : STRIDE};
        const OptimizerPeer its = {.gradient = peer->gradient ? peer->gradient + i : NULL,
                                   .factor = peer->factor};
        prefetch(t, peer, i + AHEAD);
        adam_step(config, &part, &its);
        if (peer->weight) stream_weights(peer->weight + i, part.weight, part.count);
    }
    stream_fence();
}

static void cpu_adam(const AdamConfig *config, const AdamTensor *tensors, size_t tensor_count,
                     const OptimizerPeer *peer) {
    const OptimizerPeer none = {0};
    if (peer)
        adam_with_peer(config, tensors, peer);
    else
        for (size_t t = 0; t < tensor_count; t++) adam_step(config, &tensors[t], &none);
}

static void cpu_sgd(const SgdConfig *config, const SgdTensor *tensors, size_t tensor_count,
                    const OptimizerPeer *peer) {
    const OptimizerPeer none = {0};
    for (size_t t = 0; t < tensor_count; t++) sgd_step(config, &tensors[t], peer ? peer : &none);
    if (peer && peer->weight) stream_weights(peer->weight, tensors->weight, tensors->count);
    stream_fence();
}

const OptimizerKernels cpu_optimizer = {
    .sgd = cpu_sgd,
    .adam = cpu_adam,
};
