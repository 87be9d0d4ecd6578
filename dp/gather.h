/* gather.h: the last of DataParallel's four operations: joins the outputs on the first device. */
#ifndef DP_GATHER_H
#define DP_GATHER_H

#include "dp/shards.h"

// Returns the shards' outputs, joined along shards->dim on the device of shards->output. outputs:
// parallel_apply's token. NULL with the error on the tape if the outputs differ in more than their
// number of rows.
//
//     replica's output     result
//     tensor [rows, ...]   tensor [sum of rows, ...]
//     scalar               vector [replicas with rows]
//     tuple                tuple of the same structure
Tensor *dp_gather(Tape *tape, Tensor *outputs, ReplicaShards *shards);

#endif
