/* clip.h: PyTorch's clip_grad_norm_: all gradients together are made no longer than a given length.
 *
 * The length is the square root of the sum of all elements' squares. The sum is exact (kernels.h),
 * so the length has the same bits however the gradients are divided: on one device, as equal copies
 * on every rank (DP, DDP), or as parts of which each rank has its own (ZeRO-1, FSDP).
 *
 *     own gradients -> squares -> sum over the ranks, 12 integers -> length -> scale own gradients
 *
 * Clip gradients that have been reduced (after ddp_finish_backward) and unscaled (after
 * grad_scaler_unscale). As in PyTorch, a length of NaN makes every gradient NaN, and an infinite
 * length (an element beyond 1.8e19, whose square overflows) makes each number 0, or NaN if it was
 * infinite.
 */
#ifndef COMMON_NN_CLIP_H
#define COMMON_NN_CLIP_H

#include "common/nn/optimizer.h"

typedef struct GradClip GradClip;

// Takes memory for clipping the gradients of these parameters, which are all on one device and
// outlive it. sharding: this process has its parts of the gradients only (unless has_whole is set),
// and clipping is collective. NULL: it has all gradients.
GradClip *grad_clip_open(const NamedTensors *parameters, const OptimizerSharding *sharding);
void grad_clip_close(GradClip *clip); // NULL is fine

// Multiplies the gradients by max_norm / (length + 1e-6) if that is below 1. Asynchronous: the
// length stays on the device, and the work can be captured in a graph (device.h).
void grad_clip_queue(GradClip *clip, double max_norm);
// Does the same, then waits for the device and returns the length before.
double grad_clip(GradClip *clip, double max_norm);

#endif
