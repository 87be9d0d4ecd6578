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
 * tensor. A *token*, a tensor without elements, stands for it: [S], [R] and [A]. It tells the tape
 * only which node depends on which. The tensors themselves hang on the Pieces, which each forward
 * makes anew in the tape's arena: a wrapper that is applied twice in a step has two of them.
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
    int count;        // devices that got rows from scatter; those after them stay idle
    int dim;          // the dimension that is cut and joined
    Tape *output;     // on whose device the outputs are joined: the main tape, or a fork
    Tensor **tensors; // [tensor_count] the wrapped module's own, as in Replica
    size_t tensor_count;
    bool in_backward; // gather's backward has pointed the replicas' tensors to these pieces
    Piece items[];    // [device_count]
} Pieces;

// The pieces of one forward, still empty. Everything is arena memory of the tape.
Pieces *pieces_create(Tape *tape, const Replica *replicas, int device_count, Tensor **tensors,
                      size_t tensor_count);
Tensor *pieces_token(Tape *tape);

// Where the rows [begin, end) of a tensor lie: in `runs` runs of `count` consecutive elements. The
// first run begins at `offset`, and the next one `stride` elements later. In a piece, which has
// these rows alone, one run follows the other. A cut along dimension 0 has one run.
typedef struct Cut {
    size_t runs, count, offset, stride;
} Cut;

Cut pieces_cut(const Tensor *whole, int dim, size_t begin, size_t end);

// The most bytes that are packed or added up at a time, which bounds the scratch memory for them.
// PyTorch's size (torch/nn/parallel/comm.py).
enum { PIECES_STAGING_BYTES = 10 * 1024 * 1024 };

// Copies grad[count], which lies on the device `from`, to sum[count] on the tape's device; if
// accumulate is set, adds it there.
void pieces_add_gradient(Tape *tape, float *sum, Device *from, const float *grad, size_t count,
                         bool accumulate);

#endif
