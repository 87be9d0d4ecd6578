/* buckets.c: assigns tensors to buckets in two passes.
 *
 * The first pass assigns each tensor the number of a bucket; buckets are numbered in the order of
 * opening. The second pass puts the buckets in the plan's order. In registration order, a bucket
 * opened earlier has a smaller first index, so the order of opening equals PyTorch's sort by
 * smallest index.
 */
#include "ddp/buckets.h"

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/memory.h"

// The bucket that is being filled with tensors of one key.
typedef struct Filling {
    int key;
    bool open;
    size_t bucket, bytes; // of the open bucket
    size_t limit;         // index into the limits
} Filling;

typedef struct Bucket {
    size_t position; // in the plan
    size_t limit;    // bytes
    size_t members;  // number of tensors
} Bucket;

typedef struct Filled {
    Filling *keys;
    size_t key_count;
    Bucket *buckets; // [bucket_count] in the order of opening; allocated for tensor_count
    size_t bucket_count, closed_count;
    size_t *bucket_of; // [tensor_count]
    bool by_closing;   // the plan's order is that of closing, else of opening
} Filled;

static size_t *zeros(size_t count) {
    return memory_zalloc(count * sizeof(size_t));
}

static Filling *filling_of(Filled *filled, int key) {
    for (size_t i = 0; i < filled->key_count; i++)
        if (filled->keys[i].key == key) return &filled->keys[i];
    filled->keys = memory_grow(filled->keys, filled->key_count + 1, sizeof *filled->keys);
    filled->keys[filled->key_count] = (Filling){.key = key};
    return &filled->keys[filled->key_count++];
}

static void close_bucket(Filled *filled, Filling *filling) {
    if (filled->by_closing) filled->buckets[filling->bucket].position = filled->closed_count++;
    filling->open = false;
}

static void add_tensor(Filled *filled, size_t tensor, const BucketTensor *description,
                       const size_t *limits, size_t limit_count) {
    Filling *filling = filling_of(filled, description->key);
    if (!filling->open) {
        filling->open = true;
        filling->bytes = 0;
        filling->bucket = filled->bucket_count++;
        filled->buckets[filling->bucket] =
            (Bucket){.position = filling->bucket, .limit = limits[filling->limit]};
    }
    filled->bucket_of[tensor] = filling->bucket;
    filled->buckets[filling->bucket].members++;
    filling->bytes += description->bytes;
    if (filling->bytes < limits[filling->limit]) return;
    close_bucket(filled, filling);
    if (filling->limit + 1 < limit_count) filling->limit++;
}

static BucketPlan order_buckets(const Filled *filled, size_t tensor_count, const size_t *indices) {
    size_t count = filled->bucket_count, *next = zeros(count);
    BucketPlan plan = {.bucket_count = count,
                       .order = zeros(tensor_count),
                       .start = zeros(count + 1),
                       .limits = zeros(count)};
    for (size_t i = 0; i < count; i++) {
        const Bucket *bucket = &filled->buckets[i];
        plan.limits[bucket->position] = bucket->limit;
        plan.start[bucket->position + 1] = bucket->members;
    }
    for (size_t i = 0; i < count; i++) {
        next[i] = plan.start[i];
        plan.start[i + 1] += plan.start[i];
    }
    for (size_t i = 0; i < tensor_count; i++) {
        size_t tensor = indices ? indices[i] : i;
        plan.order[next[filled->buckets[filled->bucket_of[tensor]].position]++] = tensor;
    }
    free(next);
    return plan;
}

BucketPlan buckets_assign(const BucketTensor *tensors, size_t tensor_count, const size_t *limits,
                          size_t limit_count, const size_t *indices) {
    CHECK(limit_count > 0, "buckets need a limit");
    Filled filled = {.buckets = memory_zalloc(tensor_count * sizeof(Bucket)),
                     .bucket_of = zeros(tensor_count),
                     .by_closing = indices != NULL};
    for (size_t i = 0; i < tensor_count; i++) {
        size_t tensor = indices ? indices[i] : i;
        CHECK(tensor < tensor_count, "tensor %zu of %zu", tensor, tensor_count);
        add_tensor(&filled, tensor, &tensors[tensor], limits, limit_count);
    }
    for (size_t i = 0; i < filled.key_count; i++)
        if (filled.keys[i].open) close_bucket(&filled, &filled.keys[i]);
    BucketPlan plan = order_buckets(&filled, tensor_count, indices);
    free(filled.keys);
    free(filled.buckets);
    free(filled.bucket_of);
    return plan;
}

void buckets_reverse(BucketPlan *plan) {
    size_t count = plan->bucket_count, filled = 0;
    BucketPlan reversed = {.bucket_count = count,
                           .order = zeros(plan->start[count]),
                           .start = zeros(count + 1),
                           .limits = zeros(count)};
    for (size_t i = 0; i < count; i++) {
        size_t from = count - 1 - i;
        for (size_t j = plan->start[from]; j < plan->start[from + 1]; j++)
            reversed.order[filled++] = plan->order[j];
        reversed.start[i + 1] = filled;
        reversed.limits[i] = plan->limits[from];
    }
    buckets_free(plan);
    *plan = reversed;
}

void buckets_free(BucketPlan *plan) {
    free(plan->order);
    free(plan->start);
    free(plan->limits);
    *plan = (BucketPlan){0};
}
