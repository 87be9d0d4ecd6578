/* optimizer_kernels.h: the family "optimizer" of kernels.h, whose conventions it follows: a step of
 * a list of parameters in one call.
 */
#ifndef COMMON_DEVICE_OPTIMIZER_KERNELS_H
#define COMMON_DEVICE_OPTIMIZER_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A type of floats, here of copies of weights; everywhere else of all tensors of a call.
typedef enum Precision { PRECISION_F32, PRECISION_BF16, PRECISION_F16 } Precision;

// Factors of an optimizer's step, computed in double and rounded once. In device memory, because a
// captured graph of a step (device.h) replays arguments passed by value unchanged.
enum { SCALAR_LR, SCALAR_KEEP, SCALAR_STEP_SIZE, SCALAR_BIAS_CORRECTION, SCALARS };

// As in PyTorch, settings are doubles, and each factor is computed from them in double and rounded
// to float once: 1 - beta2 computed from a rounded beta2 has a relative error of 1e-5.
typedef struct SgdConfig { // PyTorch's torch.optim.SGD
    double momentum, weight_decay;
    bool nesterov;
    Precision copies; // the type of the tensors' copies
} SgdConfig;

typedef struct SgdTensor {
    float *weight; // [count], as all that follows
    const float *gradient;
    float *velocity;      // may be NULL when momentum is 0
    const float *scalars; // [SCALARS], device memory; SCALAR_LR only
    bool first;           // (PyTorch) velocity is set to the gradient
    size_t count;
    // Receives the new weight in 16 bits, rounded as by narrow_linear, on backends with
    // HalfKernels; NULL: not written.
    uint16_t *copy;
} SgdTensor;

// PyTorch's torch.optim.Adam and AdamW, which differ in where the weight decays: Adam adds
// weight_decay times the weight to the gradient, AdamW multiplies the weight by SCALAR_KEEP.
typedef struct AdamConfig {
    double beta1, beta2, eps;
    double weight_decay; // Adam's; 0 in AdamW
    Precision copies;    // as SgdConfig's
} AdamConfig;

typedef struct AdamTensor {
    float *weight; // [count], as all that follows
    const float *gradient;
    float *exp_avg, *exp_avg_sq;
    // [SCALARS], device memory: KEEP 1 - lr weight_decay (1 in Adam), STEP_SIZE lr / (1 - beta1^t),
    // BIAS_CORRECTION sqrt(1 - beta2^t)
    const float *scalars;
    size_t count;
    uint16_t *copy; // as SgdTensor's
} AdamTensor;

// Another process's gradient and weight of a tensor, in memory that this device can access. The
// step adds that gradient to the tensor's and writes the new weights to both, in one pass.
typedef struct OptimizerPeer {
    const float *gradient; // [count]; the step uses (tensor's + this) * factor; NULL: tensor's
    float factor;
    float *weight; // [count], aligned to 16 bytes; NULL: not written
} OptimizerPeer;

typedef struct OptimizerKernels {
    // peer: of the only tensor, on a device whose memory is addressable; NULL: none.
    void (*sgd)(const SgdConfig *config, const SgdTensor *tensors, size_t tensor_count,
                const OptimizerPeer *peer);
    void (*adam)(const AdamConfig *config, const AdamTensor *tensors, size_t tensor_count,
                 const OptimizerPeer *peer);
} OptimizerKernels;

#endif
