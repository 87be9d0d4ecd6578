/* plan_cache.c: a table of keys and plans, sorted by the keys' bytes. */
#include "common/device/plan_cache.h"

#include <stdbool.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/memory.h"

typedef struct Entry {
    void *key, *plan; // the cache's
} Entry;

struct PlanCache {
    size_t key_bytes;
    void (*close_plan)(void *plan);
    Entry *entries; // [count], sorted, of which capacity are allocated
    size_t count, capacity;
};

PlanCache *plan_cache_create(size_t key_bytes, void (*close_plan)(void *plan)) {
    PlanCache *cache = memory_zalloc(sizeof *cache);
    cache->key_bytes = key_bytes;
    cache->close_plan = close_plan;
    return cache;
}

void plan_cache_close(PlanCache *cache) {
    if (!cache) return;
    for (size_t i = 0; i < cache->count; i++) {
        cache->close_plan(cache->entries[i].plan);
        free(cache->entries[i].key);
    }
    free(cache->entries);
    free(cache);
}

// The place of the first entry that is not before the key.
static size_t place_of(const PlanCache *cache, const void *key) {
    size_t begin = 0, end = cache->count;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (memcmp(cache->entries[middle].key, key, cache->key_bytes) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static bool is_at(const PlanCache *cache, size_t place, const void *key) {
    return place < cache->count && memcmp(cache->entries[place].key, key, cache->key_bytes) == 0;
}

void *plan_cache_find(const PlanCache *cache, const void *key) {
    size_t place = place_of(cache, key);
    return is_at(cache, place, key) ? cache->entries[place].plan : NULL;
}

void plan_cache_add(PlanCache *cache, const void *key, void *plan) {
    size_t place = place_of(cache, key);
    CHECK(!is_at(cache, place, key), "a second plan for a key, after %zu others", cache->count);
    if (cache->count == cache->capacity) {
        cache->capacity = cache->capacity ? 2 * cache->capacity : 16;
        cache->entries = memory_grow(cache->entries, cache->capacity, sizeof *cache->entries);
    }
    Entry *entry = &cache->entries[place];
    memmove(entry + 1, entry, (cache->count - place) * sizeof *entry);
    cache->count++;
    entry->key = memory_zalloc(cache->key_bytes);
    memcpy(entry->key, key, cache->key_bytes);
    entry->plan = plan;
}

size_t plan_cache_count(const PlanCache *cache) {
    return cache->count;
}
