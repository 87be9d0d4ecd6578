/* buckets.h: which parameter's gradient goes into which bucket (PyTorch's
 * compute_bucket_assignment_by_size, torch/csrc/distributed/c10d/reducer.cpp).
 *
 * Tensors are assigned in the given order. A bucket is closed when its bytes, after adding a
 * tensor, reach the limit: it may exceed the limit by part of one tensor, and a tensor is never
 * split. Each key (dtype, device) has its own buckets and its own position in the limits; the last
 * one repeats.
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
    size_t *start;  // [bucket_count + 1] each bucket's first index in `order`
    size_t *limits; // [bucket_count] each bucket's limit, bytes
} BucketPlan;

#define BUCKET_UNLIMITED ((size_t)-1)

// Returns the plan (buckets_free). limits: [limit_count] bytes. indices: [tensor_count] the order
// of assignment, or NULL.
//
//     indices           tensors are assigned in         buckets are in the order of
//     NULL              registration order 0, 1, ...    their smallest index
//     not NULL          the order of indices            closing
BucketPlan buckets_assign(const BucketTensor *tensors, size_t tensor_count, const size_t *limits,
                          size_t limit_count, const size_t *indices);
void buckets_reverse(BucketPlan *plan); // last bucket first
void buckets_free(BucketPlan *plan);

#endif
