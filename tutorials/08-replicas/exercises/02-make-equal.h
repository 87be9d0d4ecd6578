/* 02-make-equal.h: what happens when a model is wrapped.
 *
 * Every rank has built the model by itself, with weights of its own. Make them all rank 0's: the
 * parameters, and the buffers, too, such as batch norm's running mean (floats) and its count of
 * batches (I64). tensor_bytes(tensor) says how large a tensor is, and a broadcast of bytes does not
 * care what is in them:
 *
 *     pg_run(group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, root), err)
 *
 * The tensors are overwritten, not averaged: the mean of two random networks is no better than one,
 * and the mean of two counters is none.
 */
#ifndef TUTORIALS_MAKE_EQUAL_H
#define TUTORIALS_MAKE_EQUAL_H

#include "common/nn/tensor.h"
#include "ddp/group/process_group.h"

// tensors [count]: all of the model, parameters (requires_grad, or frozen) and buffers. Called by
// all ranks. Returns 0, or -1 with err filled.
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err);

#endif
