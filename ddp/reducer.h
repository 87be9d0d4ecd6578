/* reducer.h: makes the ranks' gradients equal while backward is still running (PyTorch's Reducer).
 *
 * The parameters' gradients live in buckets, and the buckets lie one after another in one slab of
 * memory that all ranks share: a gradient is computed where it will be reduced, and an all-reduce
 * copies nothing in or out. When the last gradient of a bucket is ready, the bucket's all-reduce
 * starts on the communication thread. Buckets are started in index order on every rank, so a bucket
 * that is ready early waits for the ones before it.
 *
 * The first backward uses one bucket, because registration order may be far from the order in which
 * gradients become ready. That order is recorded, rank 0's is broadcast, and before the second
 * forward the buckets are rebuilt by it: a first one of at most 1 MiB (if the cap is the default)
 * so that communication starts early, then ones of bucket_cap bytes.
 */
#ifndef DDP_REDUCER_H
#define DDP_REDUCER_H

#include "common/base/profile.h"
#include "common/nn/module.h"
#include "ddp/buckets.h"
#include "ddp/process_group.h"

typedef struct ReducerConfig {
    // MiB; 0: every gradient alone; negative: PyTorch's default, 25 with a first of 1.
    double bucket_cap_mb;
    bool overlap; // false: start nothing before backward has ended
    ReduceOp op;  // PG_AVG (PyTorch), or PG_SUM when the loss is divided by the global batch
} ReducerConfig;

typedef struct Reducer Reducer;

// Takes over the gradients of the module's parameters that require one: their memory is the slab
// from now on. Collective. NULL with err filled.
Reducer *reducer_create(Module *module, ProcessGroup *group, const ReducerConfig *config,
                        Error *err);
void reducer_close(Reducer *reducer); // the parameters have no gradient memory afterwards

// Before a forward whose backward will be reduced: rebuilds the buckets if it is time (a
// collective) and expects every parameter anew. Returns -1 with PyTorch's error naming the
// parameters that got no gradient if the backward before did not finish.
int reducer_prepare(Reducer *reducer, Error *err);

// The forward has ended. Only reducer_times needs to know.
void reducer_forward_done(Reducer *reducer);

// After backward: waits for all buckets. On return every parameter's gradient is the reduced one,
// the same bits on every rank. profile (may be NULL) is charged PHASE_EXPOSED.
int reducer_finish(Reducer *reducer, Profile *profile, Error *err);

// PyTorch's five events of the last backward, as times in ns: see pytorch's Logger.
typedef struct ReducerTimes {
    uint64_t forward_compute, backward_compute, backward_comm, overlap, exposed;
} ReducerTimes;
ReducerTimes reducer_times(const Reducer *reducer);

// The current buckets; tensors are the parameters that require a gradient, in registration order.
const BucketPlan *reducer_plan(const Reducer *reducer);
bool reducer_rebuilt(const Reducer *reducer);

#endif
