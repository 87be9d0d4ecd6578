/* 03-broadcast-buffers.h: the wrapper's broadcast of buffers before a forward.
 *
 * A forward in training changes the buffers, on every rank in another way; one in evaluation only
 * reads them. So before a forward broadcast rank 0's buffers, but only if there was a training
 * forward since the last broadcast. When the model is wrapped, the buffers are equal.
 *
 *     training, training, evaluation, evaluation, training
 *               ^ now     ^ now
 *
 * A buffer may be of floats or of integers (the count of batches); tensor_bytes(buffer) returns its
 * size, and a broadcast of PG_U8 is independent of its type.
 */
#ifndef TUTORIALS_BROADCAST_BUFFERS_H
#define TUTORIALS_BROADCAST_BUFFERS_H

#include "common/nn/tensor.h"
#include "ddp/group/process_group.h"

// Called by all ranks before each forward, in training or not. buffers [count]. *changed is your
// state: false when the model is wrapped, then unchanged between calls. Returns 0, or -1 with err
// filled.
int before_forward(ProcessGroup *group, Tensor *const *buffers, size_t count, bool training,
                   bool *changed, Error *err);

#endif
