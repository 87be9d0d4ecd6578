/* gradient_slab.h: where the gradients lie that a Reducer reduces.
 *
 * All of them lie in one slab of memory that the ranks share, bucket after bucket: a gradient is
 * computed where it will be reduced, and an all-reduce of a bucket copies nothing in or out. Each
 * gradient begins on a cache line, in its slice. The zeros in between are reduced along: that costs
 * less than starting one all-reduce per gradient.
 *
 * Which gradient goes into which bucket is decided elsewhere (buckets.h) and may be decided anew.
 * The slab's size does not depend on it: another plan moves gradients inside the slab. It is the
 * reducer's alone, and no secret from it.
 */
#ifndef DDP_GRADIENT_SLAB_H
#define DDP_GRADIENT_SLAB_H

#include "ddp/reducer.h"

typedef struct GradientPlace {
    size_t bucket;
    float *slice; // of the bucket
} GradientPlace;

typedef struct GradientSlab {
    NamedTensors parameters; // in registration order
    ReduceOp op;             // of every bucket
    BucketTensor *sizes;     // [parameters.count] for buckets_assign
    GradientPlace *places;   // [parameters.count]
    float *memory;           // [floats], the group's
    size_t floats;

    BucketPlan plan;
    GradBucket *buckets; // [plan.bucket_count]
    Tensor **members;    // [parameters.count] the parameters in the order of the plan
} GradientSlab;

// Takes the parameters over and finds memory for their gradients, which gradient_slab_lay_out deals
// out. Collective. -1 with err filled; it is to be closed then, too.
int gradient_slab_open(GradientSlab *slab, NamedTensors parameters, ProcessGroup *group,
                       ReduceOp op, Error *err);

// Lays the gradients out by this plan, which is the slab's from then on. Gradients that are defined
// are moved along; the others become zeros.
void gradient_slab_lay_out(GradientSlab *slab, BucketPlan plan);

// The parameters have no gradients afterwards, but where a feature keeps them. The memory is left
// to pg_close: giving it back here would take all ranks, and one that has failed may be alone.
void gradient_slab_close(GradientSlab *slab);

#endif
