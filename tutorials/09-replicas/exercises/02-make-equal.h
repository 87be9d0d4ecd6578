/* 02-make-equal.h: the broadcast with which a model is wrapped.
 *
 * Every rank has built the model by itself, with weights of its own. Make them all equal to rank
 * 0's: the parameters, and the buffers, too, such as batch norm's running mean (floats) and its
 * count of batches (I64). tensor_bytes(tensor) returns a tensor's size, and a broadcast of bytes is
 * independent of their type:
 *
 *     pg_run(group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, root), err)
 *
 * The tensors are overwritten, not averaged: the mean of two random networks is no better than
 * either, and the mean of two counters has no meaning.
 */
#ifndef TUTORIALS_MAKE_EQUAL_H
#define TUTORIALS_MAKE_EQUAL_H

#include "common/nn/tensor.h"
#include "ddp/group/process_group.h"

// tensors [count]: all of the model, parameters (requires_grad, or frozen) and buffers. Called by
// all ranks. Returns 0, or -1 with err filled.
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err);

#endif
