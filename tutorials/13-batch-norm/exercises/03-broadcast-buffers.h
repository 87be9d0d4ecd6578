/* 03-broadcast-buffers.h: what the wrapper does before a forward.
 *
 * A forward in training changes the buffers, on every rank in another way; one in evaluation only
 * uses them. So before a forward the buffers are to be made rank 0's, but only if a training
 * forward has come since that was done last. When the model is wrapped, they are equal.
 *
 *     training, training, evaluation, evaluation, training
 *               ^ now     ^ now
 *
 * A buffer may be of floats or of integers (the count of batches); tensor_bytes(buffer) knows its
 * size, and a broadcast of PG_U8 does not care.
 */
#ifndef TUTORIALS_BROADCAST_BUFFERS_H
#define TUTORIALS_BROADCAST_BUFFERS_H

#include "common/nn/tensor.h"
#include "ddp/group/process_group.h"

// Called by all ranks before each forward, in training or not. buffers [count]. *changed is yours:
// false when the model is wrapped, then what you left there. Returns 0, or -1 with err filled.
int before_forward(ProcessGroup *group, Tensor *const *buffers, size_t count, bool training,
                   bool *changed, Error *err);

#endif
