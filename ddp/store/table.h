/* table.h: the store's keys and values: a table from byte strings to byte strings.
 *
 * Its total size is bounded, so that a faulty client cannot exhaust the launcher's memory. One
 * thread uses it; no locks.
 */
#ifndef DDP_STORE_TABLE_H
#define DDP_STORE_TABLE_H

#include <stdbool.h>

#include "ddp/store/protocol.h"

enum { STORE_TABLE_BYTES_MAX = 64 << 20 }; // keys, values, and the overhead of each pair

typedef struct StoreTable StoreTable;

StoreTable *store_table_open(void);
void store_table_close(StoreTable *table);

// Copies key and value into the table. False: full, and unchanged.
bool store_table_set(StoreTable *table, StoreBytes key, StoreBytes value);
// False: no such key. *value points into the table until the next change.
bool store_table_get(const StoreTable *table, StoreBytes key, StoreBytes *value);

#endif
