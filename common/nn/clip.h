/* clip.h: PyTorch's clip_grad_norm_: scales all gradients so that their common norm is at most
 * max_norm.
 *
 * The norm is the square root of the sum of all elements' squares. The sum is exact (kernels.h), so
 * the norm has the same bits however the gradients are divided: on one device, as equal copies on
 * every rank (DP, DDP), or as parts of which each rank has its own (ZeRO-1, FSDP).
 *
 *     own gradients -> squares -> sum over the ranks, 12 integers -> norm -> scale own gradients
 *
 * Clip gradients that have been reduced (after ddp_finish_backward) and unscaled (after
 * grad_scaler_unscale). As in PyTorch, a norm of NaN makes every gradient NaN, and an infinite norm
 * (an element beyond 1.8e19, whose square overflows) makes each element 0, or NaN if it was
 * infinite.
 */
#ifndef COMMON_NN_CLIP_H
#define COMMON_NN_CLIP_H

#include "common/nn/optimizer.h"

typedef struct GradClip GradClip;

// Allocates what clipping these parameters' gradients needs. The parameters are all on one device
// and outlive the clip. sharding: this process has its parts of the gradients only (unless
// has_whole is set), and clipping is collective. NULL: it has all gradients.
GradClip *grad_clip_open(const NamedTensors *parameters, const OptimizerSharding *sharding);
void grad_clip_close(GradClip *clip); // NULL is fine

// Multiplies the gradients by max_norm / (norm + 1e-6) if that is below 1. Asynchronous: the norm
// stays on the device, and the work can be captured in a graph (device.h).
void grad_clip_queue(GradClip *clip, double max_norm);
// grad_clip_queue, then waits for the device. Returns the norm before clipping.
double grad_clip(GradClip *clip, double max_norm);

#endif
