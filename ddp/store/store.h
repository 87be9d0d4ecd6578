/* store.h: a small key-value store over TCP, by which the ranks of a job find each other (PyTorch's
 * TCPStore). One process serves (the launcher, or rank 0 when there is none); all are clients.
 *
 * The server binds to the address it is given and nothing wider, and talks only to clients that
 * prove to know the job's token, as it proves it to them (handshake.h). Keys are at most
 * STORE_KEY_MAX bytes and values STORE_VALUE_MAX; every client call has the client's timeout. The
 * server is one thread with epoll; garbage, half messages and slow clients cost it one connection
 * each and nobody else anything.
 */
#ifndef DDP_STORE_STORE_H
#define DDP_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { STORE_KEY_MAX = 256, STORE_VALUE_MAX = 65536, STORE_TOKEN_MAX = 64 };

typedef struct StoreServer StoreServer;
// port 0: the system chooses. token may be "" (then anyone who reaches the port is a client).
// An address in use is an error that says who holds the port where that can be found out.
StoreServer *store_serve(const char *host, int port, const char *token, Error *err);
int store_server_port(const StoreServer *server);
void store_server_close(StoreServer *server);

typedef struct Store Store;
// Connects, retrying until the timeout (the server may not be up yet).
Store *store_connect(const char *host, int port, const char *token, double timeout_s, Error *err);
// Another client of the same server, with the same keys: for another thread.
Store *store_clone(const Store *store, double timeout_s, Error *err);
void store_close(Store *store);
// All keys of later calls get "prefix/" in front, in place of an earlier prefix. "": nothing.
void store_set_prefix(Store *store, const char *prefix);
// The same behind the prefix that it has: "first/" becomes "first/prefix/".
void store_add_prefix(Store *store, const char *prefix);

int store_set(Store *store, const char *key, const void *value, size_t bytes, Error *err);
// Waits until the key exists. *bytes: capacity in, size out.
int store_get(Store *store, const char *key, void *value, size_t *bytes, Error *err);
// Adds to an integer key (missing: 0) and returns the new value in *result.
int store_add(Store *store, const char *key, int64_t amount, int64_t *result, Error *err);
// If the key's value equals `expected` (a missing key equals ""), sets it to desired. *value gets
// what it holds afterwards.
int store_compare_set(Store *store, const char *key, const char *expected, const char *desired,
                      char *value, size_t capacity, Error *err);
int store_wait(Store *store, const char *key, double timeout_s, Error *err);

#endif
