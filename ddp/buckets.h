/* buckets.h: which parameter's gradient goes into which bucket (PyTorch's
 * compute_bucket_assignment_by_size, torch/csrc/distributed/c10d/reducer.cpp).
 *
 * Tensors are taken in the order given. A bucket is closed when, after adding a tensor, its bytes
 * have reached the limit: a bucket may overshoot by one tensor, and a tensor is never split. Each
 * dtype fills buckets of its own and walks the list of limits on its own; the last limit repeats.
 */
#ifndef DDP_BUCKETS_H
#define DDP_BUCKETS_H

#include <stddef.h>

typedef struct BucketTensor {
    size_t bytes;
    int key; // tensors of different keys (dtype, device) never share a bucket
} BucketTensor;

typedef struct BucketPlan {
    size_t bucket_count;
    size_t *order;  // [tensor_count] tensor indices, bucket after bucket
    size_t *start;  // [bucket_count + 1] where each bucket begins in `order`
    size_t *limits; // [bucket_count] the limit that each was filled against, bytes
} BucketPlan;

#define BUCKET_UNLIMITED ((size_t)-1)

// indices: the order in which tensors are taken (ready order, when rebuilding); then buckets stay
// in the order in which they were closed. NULL: registration order 0, 1, ...; then buckets are
// sorted by their smallest tensor.
BucketPlan buckets_assign(const BucketTensor *tensors, size_t tensor_count, const size_t *limits,
                          size_t limit_count, const size_t *indices);
void buckets_reverse(BucketPlan *plan); // last bucket first
void buckets_free(BucketPlan *plan);

#endif
