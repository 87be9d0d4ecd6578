/* operations.h: DataParallel's four operations on the tape. data_parallel_forward calls them in
 * this order; each one's file has its forward and its backward.
 *
 * A function that returns NULL leaves the error on the tape.
 */
#ifndef DP_OPERATIONS_H
#define DP_OPERATIONS_H

#include "dp/shards.h"

// ---- scatter.c: copies the batch's rows to the devices ------------------------------------------

// Cuts x[rows, ...], or all tensors of a tuple, along shards->dim and copies the shards to the
// devices: sets shards->count and every shard's x. Returns the inputs' token, which requires a
// gradient if an input does. NULL if x has a scalar, or tensors with different numbers of rows.
Tensor *dp_scatter(Tape *tape, Tensor *x, ReplicaShards *shards);

// The scatter of a wrapper with one device: returns x, after the same checks, with tensors of other
// devices copied to the tape's device.
Tensor *scatter_to_one(Tape *tape, Tensor *x, int dim);

// ---- replicate.c: copies the module to every device ---------------------------------------------

// Returns the module's tree on the device, built once; every forward sets its tensors' pointers.
Replica replica_create(Module *module, Device *device);
void replica_close(const Replica *replica);

// Copies the module's parameters and buffers to the devices with rows. Returns the copies' token,
// which requires a gradient if a parameter does.
Tensor *dp_replicate(Tape *tape, ReplicaShards *shards);

// Points the replicas' tensors to these shards' copies, without gradients. Backward calls it again,
// because the same replicas may have run other forwards since.
void replicate_install(const ReplicaShards *shards);

// Returns the module's [*count] tensors, in state_dict order. The caller frees the array.
Tensor **replicate_tensors(Module *module, size_t *count);

// ---- parallel_apply.c: runs the replicas on their rows in parallel ------------------------------

// Runs every replica on its shard, on its device's thread: sets every shard's y. inputs, replicas:
// the tokens of scatter and replicate. Returns the outputs' token, or NULL.
Tensor *dp_parallel_apply(Tape *tape, Tensor *inputs, Tensor *replicas, ReplicaShards *shards);

// ---- gather.c: joins the outputs on the first device --------------------------------------------

// Returns the shards' outputs, joined along shards->dim on the device of shards->output. outputs:
// parallel_apply's token. NULL if the outputs differ in more than their number of rows.
//
//     replica's output     result
//     tensor [rows, ...]   tensor [sum of rows, ...]
//     scalar               vector [replicas with rows]
//     tuple                tuple of the same structure
Tensor *dp_gather(Tape *tape, Tensor *outputs, ReplicaShards *shards);

#endif
