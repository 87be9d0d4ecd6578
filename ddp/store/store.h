/* store.h: a key-value store over TCP for the rendezvous of a job's ranks (PyTorch's TCPStore).
 *
 * One process serves (the launcher; without one, rank 0), all ranks are clients. Client and server
 * authenticate each other by the job's token.
 *
 *   limits     keys STORE_KEY_MAX bytes, values STORE_VALUE_MAX; the port is bound to one address
 *   time-outs  every client call has the client's
 *   server     one thread with epoll; a malformed, incomplete or slow request costs it one
 *              connection and delays no other client
 *   client     a Store is used by one thread at a time; another thread needs a store_clone
 *
 * Functions that return int: 0, or -1 with err filled.
 */
#ifndef DDP_STORE_STORE_H
#define DDP_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "ddp/store/store_limits.h"

// Writes a random token: 128 bits as 32 hexadecimal digits.
int store_make_token(char token[STORE_TOKEN_MAX + 1], Error *err);

typedef struct StoreServer StoreServer;
// Starts a server at host:port, in a thread of its own, until store_server_close. port 0: any free
// port. token "": no authentication. NULL with err filled on failure; for a port in use the error
// names the process that holds it, if /proc shows it.
StoreServer *store_serve(const char *host, int port, const char *token, Error *err);
int store_server_port(const StoreServer *server);
void store_server_close(StoreServer *server);

typedef struct Store Store;
// Connects, with retries until timeout_s because the server may start later. timeout_s is also that
// of each later call. NULL with err filled on time-out or a wrong token.
Store *store_connect(const char *host, int port, const char *token, double timeout_s, Error *err);
// Connects to the same server once more, with the same prefix, for another thread.
Store *store_clone(const Store *store, double timeout_s, Error *err);
void store_close(Store *store);
// False after a call that found the connection closed or broken: every further call fails.
bool store_is_connected(const Store *store);
// Sets the prefix: later calls use "prefix/key". "" removes it.
void store_set_prefix(Store *store, const char *prefix);
// Appends to the prefix: "first/" becomes "first/prefix/".
void store_add_prefix(Store *store, const char *prefix);

int store_set(Store *store, const char *key, const void *value, size_t bytes, Error *err);
// Waits until the key exists and copies its value. *bytes: the capacity of value; afterwards the
// value's size.
int store_get(Store *store, const char *key, void *value, size_t *bytes, Error *err);
// Adds to a key that holds an integer; *result is the sum. A missing key counts as 0.
int store_add(Store *store, const char *key, int64_t amount, int64_t *result, Error *err);
// Sets the key to `desired` if its value equals `expected` (a missing key equals ""). Copies the
// resulting value of the key, with a NUL, to value.
int store_compare_set(Store *store, const char *key, const char *expected, const char *desired,
                      char *value, size_t capacity, Error *err);
// Waits until the key exists, with a time-out of its own.
int store_wait(Store *store, const char *key, double timeout_s, Error *err);

#endif
