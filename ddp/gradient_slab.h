/* gradient_slab.h: the memory of the gradients that a Reducer reduces.
 *
 * One slab shared by the ranks holds all buckets contiguously: gradients are computed in place, and
 * an all-reduce of a bucket copies nothing in or out. Each gradient's slice begins on a cache line.
 * The zeros that pad a slice are reduced, too, which costs less than one all-reduce per gradient.
 *
 * buckets.h assigns gradients to buckets. The slab's size does not depend on the plan: another plan
 * moves gradients within the slab. Belongs to the reducer; features read its fields.
 */
#ifndef DDP_GRADIENT_SLAB_H
#define DDP_GRADIENT_SLAB_H

#include "ddp/buckets.h"
#include "ddp/comm_hook.h"

typedef struct BucketSlice { // a gradient's memory, unless a feature keeps the gradient elsewhere
    size_t bucket;
    float *data; // of the bucket
} BucketSlice;

typedef struct GradientSlab {
    NamedTensors parameters; // in registration order
    ReduceOp op;             // of every bucket
    BucketTensor *sizes;     // [parameters.count] for buckets_assign
    BucketSlice *slices;     // [parameters.count]
    float *memory;           // [floats], the group's
    size_t floats;

    BucketPlan plan;
    GradBucket *buckets; // [plan.bucket_count]
    Tensor **members;    // [parameters.count] the parameters in the order of the plan
} GradientSlab;

// Takes the parameters and allocates the slab; gradient_slab_lay_out assigns the slices.
// Collective. Returns 0, or -1 with err filled. In either case gradient_slab_close follows.
int gradient_slab_open(GradientSlab *slab, NamedTensors parameters, ProcessGroup *group,
                       ReduceOp op, Error *err);

// Takes the plan and lays the gradients out by it. Defined gradients keep their values; the others
// become zeros.
void gradient_slab_lay_out(GradientSlab *slab, BucketPlan plan);

// The parameters have no gradients afterwards, except those that a feature keeps. pg_close frees
// the memory: freeing it here would be collective, and the other ranks of a failed one may have
// ended.
void gradient_slab_close(GradientSlab *slab);

#endif
