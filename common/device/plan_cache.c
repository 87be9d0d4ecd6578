/* plan_cache.c: keys and plans in libc's search tree (tsearch). */
#include "common/device/plan_cache.h"

#include <search.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/memory.h"

typedef struct Entry {
    void *plan;
    const void *key; // [bytes]; the cache's copy is behind its entry
    size_t bytes;
} Entry;

struct PlanCache {
    size_t key_bytes;
    void (*close_plan)(void *plan);
    void *entries; // the tree's root; NULL: empty
};

static int compare(const void *a, const void *b) {
    const Entry *x = a, *y = b;
    return memcmp(x->key, y->key, x->bytes);
}

PlanCache *plan_cache_create(size_t key_bytes, void (*close_plan)(void *plan)) {
    PlanCache *cache = memory_zalloc(sizeof *cache);
    *cache = (PlanCache){key_bytes, close_plan, NULL};
    return cache;
}

void plan_cache_close(PlanCache *cache) {
    while (cache && cache->entries) {
        Entry *entry = *(Entry **)cache->entries; // a node begins with its entry
        tdelete(entry, &cache->entries, compare);
        cache->close_plan(entry->plan);
        free(entry);
    }
    free(cache);
}

void *plan_cache_find(const PlanCache *cache, const void *key) {
    const Entry wanted = {NULL, key, cache->key_bytes};
    Entry *const *found = tfind(&wanted, &cache->entries, compare);
    return found ? (*found)->plan : NULL;
}

void plan_cache_add(PlanCache *cache, const void *key, void *plan) {
    Entry *entry = memory_zalloc(sizeof *entry + cache->key_bytes);
    *entry = (Entry){plan, memcpy(entry + 1, key, cache->key_bytes), cache->key_bytes};
    Entry *const *added = tsearch(entry, &cache->entries, compare);
    CHECK(added && *added == entry, "a key of %zu bytes has a plan already", cache->key_bytes);
}
