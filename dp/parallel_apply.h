/* parallel_apply.h: the third of DataParallel's four operations: every replica computes on its
 * rows, all at the same time.
 */
#ifndef DP_PARALLEL_APPLY_H
#define DP_PARALLEL_APPLY_H

#include "dp/pieces.h"

// Runs every replica on its piece, each on its device's thread: sets every piece's y. Takes the
// tokens of scatter and replicate and returns the one that stands for the outputs. NULL if a
// replica failed.
Tensor *dp_parallel_apply(Tape *tape, Tensor *inputs, Tensor *replicas, Pieces *pieces);

#endif
