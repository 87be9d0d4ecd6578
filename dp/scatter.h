/* scatter.h: the first of DataParallel's four operations: a batch's rows to the devices. */
#ifndef DP_SCATTER_H
#define DP_SCATTER_H

#include "dp/pieces.h"

// Cuts x[rows, ...], or all tensors of a tuple, along pieces->dim and puts the pieces on the
// devices: sets pieces->count and every piece's x. Returns the token that stands for them, which
// wants a gradient if an input does. NULL (with the error on the tape) if there is a scalar, which
// has no rows, or if the tensors differ in their number of rows.
Tensor *dp_scatter(Tape *tape, Tensor *x, Pieces *pieces);

// The scatter of a wrapper with one device: checks x in the same way and returns it. Tensors that
// lie on another device are copied to the tape's first.
Tensor *scatter_to_one(Tape *tape, Tensor *x, int dim);

#endif
