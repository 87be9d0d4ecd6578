/* table.h: the store's keys and values, in the server's memory.
 *
 * A chained hash table from byte strings to byte strings. What it holds in total is bounded, so
 * that a client that goes wrong cannot eat the launcher's memory. One thread uses it; no locks.
 */
#ifndef DDP_STORE_TABLE_H
#define DDP_STORE_TABLE_H

#include <stdbool.h>

#include "ddp/store/protocol.h"

enum { STORE_TABLE_BYTES_MAX = 64 << 20 }; // keys, values and the entries that hold them

typedef struct StoreTable StoreTable;

StoreTable *store_table_open(void);
void store_table_close(StoreTable *table);

// Copies key and value into the table. Returns false if it is full; then nothing has changed.
bool store_table_set(StoreTable *table, StoreBytes key, StoreBytes value);
// Returns false if there is no such key. *value points into the table until the next change.
bool store_table_get(const StoreTable *table, StoreBytes key, StoreBytes *value);

#endif
