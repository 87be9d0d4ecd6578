/* plan_cache.h: what was worked out for a key, found again by the key's bytes.
 *
 * Before a library's first product or convolution of a shape it is asked how to go about it, which
 * takes far longer than the product. The answer (a plan) is kept here. The shapes of a model are
 * few and all met in its first step; so a sorted table is enough: a handful of comparisons to find,
 * nothing allocated when a plan is found.
 *
 * Keys are structs without padding, compared as bytes. Plans belong to the cache. This file knows
 * neither what a plan is nor any library.
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
// The key, which is copied, must not be there yet.
void plan_cache_add(PlanCache *cache, const void *key, void *plan);
size_t plan_cache_count(const PlanCache *cache);

#endif
