/* table.c: see table.h. An entry is one allocation: header, key, value. */
#include "ddp/store/table.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/memory.h"

enum { BUCKETS = 4096 }; // a few keys per rank: chains are short

typedef struct Entry {
    struct Entry *next;
    size_t key_bytes, value_bytes;
    uint8_t data[]; // key, then value
} Entry;

struct StoreTable {
    Entry *buckets[BUCKETS];
    size_t bytes; // of all entries
};

StoreTable *store_table_open(void) {
    return memory_zalloc(sizeof(StoreTable));
}

void store_table_close(StoreTable *table) {
    if (!table) return;
    for (size_t i = 0; i < BUCKETS; i++) {
        for (Entry *entry = table->buckets[i], *next; entry; entry = next) {
            next = entry->next;
            free(entry);
        }
    }
    free(table);
}

static size_t bucket_of(StoreBytes key) {
    uint64_t hash = hash_bytes(HASH_START, key.data, key.bytes);
    return (size_t)((hash ^ (hash >> 32)) % BUCKETS);
}

// Returns the link to the key's entry, or the NULL link at the chain's end.
static Entry **find_link(StoreTable *table, StoreBytes key) {
    Entry **link = &table->buckets[bucket_of(key)];
    while (*link &&
           ((*link)->key_bytes != key.bytes || memcmp((*link)->data, key.data, key.bytes) != 0))
        link = &(*link)->next;
    return link;
}

static size_t entry_bytes(size_t key_bytes, size_t value_bytes) {
    return sizeof(Entry) + key_bytes + value_bytes;
}

bool store_table_set(StoreTable *table, StoreBytes key, StoreBytes value) {
    Entry **link = find_link(table, key);
    Entry *old = *link;
    size_t freed = old ? entry_bytes(old->key_bytes, old->value_bytes) : 0;
    size_t needed = entry_bytes(key.bytes, value.bytes);
    if (table->bytes - freed + needed > STORE_TABLE_BYTES_MAX) return false;

    Entry *entry = memory_zalloc(needed);
    entry->next = old ? old->next : NULL;
    entry->key_bytes = key.bytes;
    entry->value_bytes = value.bytes;
    memcpy(entry->data, key.data, key.bytes);
    if (value.bytes) memcpy(entry->data + key.bytes, value.data, value.bytes);
    *link = entry;
    table->bytes += needed - freed;
    free(old);
    return true;
}

bool store_table_get(const StoreTable *table, StoreBytes key, StoreBytes *value) {
    const Entry *entry = *find_link((StoreTable *)table, key); // read-only use
    if (!entry) return false;
    *value = (StoreBytes){entry->data + entry->key_bytes, entry->value_bytes};
    return true;
}
