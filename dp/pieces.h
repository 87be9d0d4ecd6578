/* pieces.h: what one forward of a DataParallel has on its devices, between the four operations.
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
 * The main tape records four nodes. What flows between them lies on many devices, so it is not one
 * tensor; a *token*, a tensor without elements, stands for it, and only tells the tape's counting
 * of uses what depends on what. The tensors themselves hang on the Pieces, which each forward makes
 * anew in the tape's arena: a wrapper that is applied twice in a step has two of them.
 *
 * Invariant: what belongs to device i is touched by device i's thread while a replica runs, and by
 * the caller's otherwise; it gets to another device by device_copy and in no other way.
 */
#ifndef DP_PIECES_H
#define DP_PIECES_H

#include "common/base/trace.h"
#include "common/nn/module.h"

// The module as one device sees it. The tree is built once, by data_parallel; what its tensors
// point to is set by every forward (replicate.c).
typedef struct Replica {
    Device *device;
    Module *module;
    Tensor **tensors; // [tensor_count] its parameters and buffers, in state_dict order
    Trace *trace;     // may be NULL
    int track;
} Replica;

typedef struct Piece { // one device's part of one forward
    const Replica *replica;
    Tape *tape;    // a fork of the main tape
    void **copies; // [tensor_count] where this forward's weights and buffers lie, on the device
    Tensor *x, *y; // this device's rows of the input and of the output: tensors or tuples
    Tensor **inputs, **outputs; // their leaves (nn/tuple.h)
} Piece;

typedef struct Pieces {
    int device_count;
    int count;        // of them with rows: what scatter made; the last devices may be idle
    int dim;          // the dimension that is cut and joined
    Tape *output;     // on whose device the outputs are joined: the main tape, or a fork
    Tensor **tensors; // [tensor_count] the wrapped module's own, as in Replica
    size_t tensor_count;
    bool in_backward; // the replicas' tensors are these pieces' (gather.c)
    Piece items[];    // [device_count]
} Pieces;

// The pieces of one forward, still empty. Everything is arena memory of the tape.
Pieces *pieces_create(Tape *tape, const Replica *replicas, int device_count, Tensor **tensors,
                      size_t tensor_count);
Tensor *pieces_token(Tape *tape);

// Where rows begin..end of a tensor lie: `runs` runs of `count` consecutive elements, the first at
// `offset`, the starts `stride` apart. In the piece that has these rows alone, the runs follow one
// another. Cut along dimension 0, there is one run.
typedef struct Cut {
    size_t runs, count, offset, stride;
} Cut;

Cut pieces_cut(const Tensor *whole, int dim, size_t begin, size_t end);

// PyTorch's size for DataParallel's transfers (torch/nn/parallel/comm.py): it bounds the memory
// that what is on its way takes.
enum { PIECES_STAGING_BYTES = 10 * 1024 * 1024 };

// sum[count] (+)= grad[count], wherever grad is. sum: memory of the tape's device.
void pieces_add_gradient(Tape *tape, float *sum, Device *from, const float *grad, size_t count,
                         bool accumulate);

#endif
