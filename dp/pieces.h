/* pieces.h: what one forward of a DataParallel has on its devices, between the four operations.
 *
 *      main tape (devices[0]):   x -> scatter -> [S] -> parallel_apply -> [A] -> gather -> y
 *                       parameters -> replicate -> [R] ---^
 *      tape of device i:         x_i, copies of the parameters -> the replica's own operations ->
 * y_i
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
    Tensor *x, *y; // this device's rows of the input and of the output
} Piece;

typedef struct Pieces {
    int device_count;
    int count;        // of them with rows: what scatter made; the last devices may be idle
    Tensor **tensors; // [tensor_count] the wrapped module's own, as in Replica
    size_t tensor_count;
    Piece items[]; // [device_count]
} Pieces;

// The pieces of one forward, still empty. Everything is arena memory of the tape.
Pieces *pieces_create(Tape *tape, const Replica *replicas, int device_count, Tensor **tensors,
                      size_t tensor_count);
Tensor *pieces_token(Tape *tape);

// Bytes of one row (everything but dimension 0).
size_t pieces_row_bytes(const Tensor *tensor);

// sum (+)= part's gradient, wherever part is. sum: memory of the tape's device.
void pieces_add_gradient(Tape *tape, float *sum, const Tensor *part, bool accumulate);

#endif
