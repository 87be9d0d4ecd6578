/* clip.h: PyTorch's clip_grad_norm_: all gradients together are made no longer than a given length.
 *
 * The length is the square root of the sum of squares of the gradients' own lengths, added in the
 * order of the parameters: equal gradients have a length of equal bits on every rank. So clip
 * gradients that have been reduced (after ddp_finish_backward) and unscaled (after
 * grad_scaler_unscale). As in PyTorch, a length of NaN makes every gradient NaN, and an infinite
 * length makes each number 0, or NaN if it was infinite.
 */
#ifndef COMMON_NN_CLIP_H
#define COMMON_NN_CLIP_H

#include "common/nn/module.h"

typedef struct GradClip GradClip;

// Takes memory for clipping the gradients of these parameters, which are all on one device and
// outlive it.
GradClip *grad_clip_open(const NamedTensors *parameters);
void grad_clip_close(GradClip *clip); // NULL is fine

// Multiplies the gradients by max_norm / (length + 1e-6) if that is below 1. Asynchronous: the
// length stays on the device, and the work can be captured in a graph (device.h).
void grad_clip_queue(GradClip *clip, double max_norm);
// Does the same, then waits for the device and returns the length before.
double grad_clip(GradClip *clip, double max_norm);

#endif
