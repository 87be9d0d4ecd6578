/* shards.h: one forward's shards: each device's rows of the batch, and the replica that computes on
 * them.
 *
 *     main tape, on devices[0]
 *
 *         x ----------> scatter ----[S]---+
 *                                         +--> parallel_apply --[A]--> gather --> y
 *         parameters -> replicate --[R]---+
 *
 *     tape of device i
 *
 *         x_i, copies of the parameters --> the replica's own operations --> y_i
 *
 * The main tape records four nodes. The values between them are spread over many devices, so a
 * *token*, a tensor without elements, takes their place on the tape: [S], [R] and [A]. A token only
 * records which node depends on which. The tensors themselves are in a ReplicaShards, which each
 * forward allocates in the tape's arena: a wrapper that is applied twice in a step has two of them.
 *
 * Invariant: memory of device i is accessed by device i's thread while a replica runs, by the
 * caller's thread otherwise, and copied to other devices by device_copy only.
 */
#ifndef DP_SHARDS_H
#define DP_SHARDS_H

#include "common/base/trace.h"
#include "common/nn/module.h"

// The module on one device. data_parallel builds the tree once; every forward sets its tensors'
// pointers (replicate.c).
typedef struct Replica {
    Device *device;
    Module *module;
    Tensor **tensors; // [tensor_count] its parameters and buffers, in state_dict order
    Trace *trace;     // may be NULL
    int track;
} Replica;

typedef struct ReplicaShard { // one device's share of one forward
    const Replica *replica;
    Tape *tape;    // a fork of the main tape
    void **copies; // [tensor_count] this forward's weights and buffers, in the device's memory
    Tensor *x, *y; // this device's rows of the input and of the output: tensors or tuples
    Tensor **inputs, **outputs; // their leaves (nn/tuple.h)
} ReplicaShard;

typedef struct ReplicaShards {
    int device_count;
    int count;        // devices with rows, from the first; the others are idle
    int dim;          // the dimension of the rows: cut by scatter, joined by gather
    Tape *output;     // on its device the outputs are joined: the main tape, or a fork
    Tensor **tensors; // [tensor_count] the wrapped module's own, as in Replica
    size_t tensor_count;
    bool in_backward;     // the replicas' tensors point to these shards' copies
    ReplicaShard items[]; // [device_count]
} ReplicaShards;

// The shards of one forward, without rows. All memory is in the tape's arena.
ReplicaShards *shards_create(Tape *tape, const Replica *replicas, int device_count,
                             Tensor **tensors, size_t tensor_count);
Tensor *shards_token(Tape *tape);

// The rows [begin, end) of a tensor: `runs` runs of `count` consecutive elements. The first run
// begins at element `offset`, the next one `stride` elements later. In a shard, which holds these
// rows only, the runs are contiguous. A cut along dimension 0 has one run.
typedef struct Cut {
    size_t runs, count, offset, stride;
} Cut;

Cut shards_cut(const Tensor *whole, int dim, size_t begin, size_t end);

// The most bytes packed or accumulated at a time: bounds the scratch memory. PyTorch's size
// (torch/nn/parallel/comm.py).
enum { SHARDS_STAGING_BYTES = 10 * 1024 * 1024 };

// Copies grad[count] on the device `from` to sum[count] on the tape's device, or adds it to sum if
// accumulate is set.
void shards_add_gradient(Tape *tape, float *sum, Device *from, const float *grad, size_t count,
                         bool accumulate);
// Adds several gradients on the tape's device, in their order.
void shards_accumulate(Tape *tape, const DeviceTerm *terms, size_t count);

#endif
