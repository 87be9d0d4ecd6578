/* scatter.h: the first of DataParallel's four operations: a batch's rows to the devices. */
#ifndef DP_SCATTER_H
#define DP_SCATTER_H

#include "dp/pieces.h"

// Cuts x[rows, ...] along dimension 0 and puts the pieces on the devices: sets pieces->count and
// every piece's x. Returns the token that stands for them, which wants a gradient if x does. NULL
// (with the error on the tape) if x is a scalar.
Tensor *scatter(Tape *tape, Tensor *x, Pieces *pieces);

#endif
