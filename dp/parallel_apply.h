/* parallel_apply.h: the third of DataParallel's four operations: runs the replicas on their rows in
 * parallel.
 */
#ifndef DP_PARALLEL_APPLY_H
#define DP_PARALLEL_APPLY_H

#include "dp/shards.h"

// Runs every replica on its shard, on its device's thread: sets every shard's y. inputs, replicas:
// the tokens of scatter and replicate. Returns the outputs' token, or NULL with the error on the
// tape.
Tensor *dp_parallel_apply(Tape *tape, Tensor *inputs, Tensor *replicas, ReplicaShards *shards);

#endif
