/* half_copy.h: linear layers' parameters in 16 bits, kept from step to step.
 *
 * Under autocast a linear layer's products read its weight and bias rounded to 16 bits. Without
 * copies each forward rounds them, as PyTorch's autocast does: a launch per layer and step. With
 * OptimizerConfig.half_copies the optimizer owns a copy of each parameter, and the kernel that
 * updates a parameter also writes its copy. The rounding is the same, and so are the bits.
 *
 *   writer of a parameter                    its copy
 *   optimizer_step, also in a hook           is written by the same kernel
 *   a skipped step (grad_scaler.h)           stays current, as the parameter
 *   tensor_from_host: checkpoints            is outdated
 *   DDP's broadcast, model_averager_step     is outdated
 *   another optimizer                        is outdated
 *   any other                                is outdated by the writer: tensor_changed
 *
 * An outdated copy is rounded again by the next forward that reads it, or by the next
 * optimizer_begin_step, which precedes each replay of a captured step.
 *
 * Parameters without copies: shards and those of a sharded optimizer (ZeRO-1, FSDP); replicas'
 * (DataParallel), whose tensors are new in each step; those that no linear layer has used while a
 * tape recorded; in float32, all.
 */
#ifndef COMMON_NN_HALF_COPY_H
#define COMMON_NN_HALF_COPY_H

#include "common/nn/tensor.h"

struct HalfCopy {
    Precision precision;
    bool current;   // data is the parameter, rounded
    uint16_t *data; // [tensor_count], device memory; NULL: no recorded forward has read it yet
    size_t bytes;   // of the memory that begins at data and is this copy's: a weight's contains its
                    // padding and the bias's copy (linear_narrow_count), so a bias has 0
};

// Returns the copies of a linear layer's parameters, laid out as by HalfKernels' narrow_linear and
// current; bias may be NULL. NULL if the layer has none in this precision, or if the memory of a
// parameter that it shares with another layer is laid out for that one. allocate: makes those that
// do not exist yet, which must not be while a graph is captured.
uint16_t *half_copy_linear(Tensor *weight, Tensor *bias, Precision precision, LinearShape shape,
                           bool allocate);
// Rounds an outdated copy again.
void half_copy_refresh(const Tensor *parameter);
// Frees the copy's memory. The tensor has no copy afterwards.
void half_copy_close(Tensor *parameter);

#endif
