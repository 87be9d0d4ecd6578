/* tuple.h: several tensors passed as one value: the input or output of a module with several. A
 * tuple is a Tensor without data or shape, so that the forward functions of modules and wrappers
 * keep their one signature:
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

// Returns a tuple in the tape's arena; the items may have other owners. count may be 0.
Tensor *tuple_create(Tape *tape, Tensor *const *items, int count);

// The same for tensors that stay within a model: they keep their types (table in tape.h).
Tensor *tuple_keep(Tape *tape, Tensor *const *items, int count);

// Returns the number of leaves; fills leaves[] unless it is NULL.
size_t tuple_leaves(Tensor *tensor, Tensor **leaves);

// Returns the same tree with other leaves, in the same order; of a tensor, leaves[0].
Tensor *tuple_with_leaves(Tape *tape, const Tensor *tree, Tensor *const *leaves);

// Whether two trees have the same structure; their tensors may differ.
bool tuple_same_tree(const Tensor *a, const Tensor *b);

#endif
