/* tuple.h: several tensors that travel as one: what a module takes or returns when it takes or
 * returns more than one. A tuple is a Tensor without data or shape, so that forward functions, and
 * the wrappers that stand in for them, keep their one signature:
 *
 *      module_forward(model, tape, tuple_create(tape, (Tensor *[]){image, mask}, 2))
 *      static Tensor *forward(Module *self, Tape *tape, Tensor *x) { ... x->items[0] ... }
 *
 * An item is a tensor, a tuple (PyTorch's nested lists, tuples and dicts; names are positions), or
 * NULL (PyTorch's None). The operations of nn/ops.h take tensors, not tuples. Below, a tuple's
 * *leaves* are its tensors and NULLs from left to right through all levels; a tensor is its own
 * only leaf.
 */
#ifndef COMMON_NN_TUPLE_H
#define COMMON_NN_TUPLE_H

#include "common/nn/tensor.h"

typedef struct Tape Tape; // common/nn/tape.h

// Arena memory of the tape; the items themselves may be anyone's. count may be 0.
Tensor *tuple_create(Tape *tape, Tensor *const *items, int count);

// Fills leaves[], unless that is NULL, and returns how many there are.
size_t tuple_leaves(Tensor *tensor, Tensor **leaves);

// The same tree with other leaves, in the same order. Of a tensor: leaves[0].
Tensor *tuple_with_leaves(Tape *tape, const Tensor *tree, Tensor *const *leaves);

// Whether two trees differ in their tensors at most.
bool tuple_same_tree(const Tensor *a, const Tensor *b);

#endif
