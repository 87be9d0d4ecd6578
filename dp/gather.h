/* gather.h: the last of DataParallel's four operations: the outputs to the first device. */
#ifndef DP_GATHER_H
#define DP_GATHER_H

#include "dp/pieces.h"

// Joins the pieces' outputs along pieces->dim, on the device of pieces->output; a tuple of outputs
// becomes a tuple. Takes the token of parallel_apply. Scalars become a vector, one element per
// replica that ran. NULL (with the error on the tape) if the outputs differ in more than their
// number of rows.
Tensor *dp_gather(Tape *tape, Tensor *outputs, Pieces *pieces);

#endif
