/* plan_cache.h: the plans of a library (cuBLAS, cuDNN), found by the bytes of their keys.
 *
 * A library chooses an algorithm before its first product or convolution of a shape; the choice (a
 * plan) takes far longer than the product. A model has few shapes, all of which occur in its first
 * step, so finding a plan is a handful of comparisons and allocates nothing.
 *
 * Keys are structs without padding, compared as bytes. The cache owns its plans. This file is
 * independent of the plans' type and of any library.
 */
#ifndef COMMON_DEVICE_PLAN_CACHE_H
#define COMMON_DEVICE_PLAN_CACHE_H

#include <stddef.h>

typedef struct PlanCache PlanCache;

// close_plan is called for every plan when the cache is closed.
PlanCache *plan_cache_create(size_t key_bytes, void (*close_plan)(void *plan));
void plan_cache_close(PlanCache *cache); // NULL is fine
// The plan, or NULL.
void *plan_cache_find(const PlanCache *cache, const void *key);
// Adds a plan; the key is copied, and has no plan yet.
void plan_cache_add(PlanCache *cache, const void *key, void *plan);

#endif
