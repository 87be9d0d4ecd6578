/* scatter.h: the first of DataParallel's four operations: copies the batch's rows to the devices.
 * */
#ifndef DP_SCATTER_H
#define DP_SCATTER_H

#include "dp/shards.h"

// Cuts x[rows, ...], or all tensors of a tuple, along shards->dim and copies the shards to the
// devices: sets shards->count and every shard's x. Returns the inputs' token, which requires a
// gradient if an input does. NULL with the error on the tape if x has a scalar, or tensors with
// different numbers of rows.
Tensor *dp_scatter(Tape *tape, Tensor *x, ReplicaShards *shards);

// The scatter of a wrapper with one device: returns x, after the same checks, with tensors of other
// devices copied to the tape's device.
Tensor *scatter_to_one(Tape *tape, Tensor *x, int dim);

#endif
