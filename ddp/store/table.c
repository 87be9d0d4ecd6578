/* table.c: see table.h. A tree of entries (tsearch), each one allocation: key, then value. */
#include "ddp/store/table.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/memory.h"

enum { NODE_BYTES = 32 }; // allocated by tsearch for an entry

typedef struct Entry {
    StoreBytes key, value; // in data
    uint8_t data[];
} Entry;

struct StoreTable {
    void *root;   // of the tree of entries
    size_t bytes; // of all entries
};

StoreTable *store_table_open(void) {
    return memory_zalloc(sizeof(StoreTable));
}

void store_table_close(StoreTable *table) {
    if (table) tdestroy(table->root, free);
    free(table);
}

static int compare_keys(const void *a, const void *b) {
    const StoreBytes one = ((const Entry *)a)->key, two = ((const Entry *)b)->key;
    if (one.bytes != two.bytes) return one.bytes < two.bytes ? -1 : 1;
    return memcmp(one.data, two.data, one.bytes);
}

bool store_table_set(StoreTable *table, StoreBytes key, StoreBytes value) {
    StoreBytes old;
    const bool replaces = store_table_get(table, key, &old);
    const size_t freed = replaces ? NODE_BYTES + sizeof(Entry) + key.bytes + old.bytes : 0;
    const size_t needed = NODE_BYTES + sizeof(Entry) + key.bytes + value.bytes;
    if (table->bytes - freed + needed > STORE_TABLE_BYTES_MAX) return false;

    Entry *entry = memory_zalloc(needed - NODE_BYTES);
    entry->key = (StoreBytes){entry->data, key.bytes};
    entry->value = (StoreBytes){entry->data + key.bytes, value.bytes};
    memcpy(entry->data, key.data, key.bytes);
    if (value.bytes) memcpy(entry->data + key.bytes, value.data, value.bytes);
    Entry **node = tsearch(entry, &table->root, compare_keys);
    CHECK(node, "no memory for an entry of the store");
    if (replaces) free(*node);
    *node = entry;
    table->bytes += needed - freed;
    return true;
}

bool store_table_get(const StoreTable *table, StoreBytes key, StoreBytes *value) {
    const Entry wanted = {.key = key};
    Entry *const *node = tfind(&wanted, &table->root, compare_keys);
    if (node) *value = (*node)->value;
    return node;
}
