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

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { STORE_KEY_MAX = 256, STORE_VALUE_MAX = 65536, STORE_TOKEN_MAX = 64 };

// Makes a token that nobody guesses: 128 random bits, as hexadecimal digits.
int store_make_token(char token[STORE_TOKEN_MAX + 1], Error *err);

typedef struct StoreServer StoreServer;
// Serves at host:port until it is closed. With port 0 the system chooses a free one. If token is
// "", anyone who reaches the port is a client. Returns NULL with err filled on failure; for a port
// in use the error says who holds it, where that can be found out.
StoreServer *store_serve(const char *host, int port, const char *token, Error *err);
int store_server_port(const StoreServer *server);
void store_server_close(StoreServer *server);

typedef struct Store Store;
// Connects, and tries again until timeout_s has passed, because the server may not be up yet. The
// timeout also holds for each later call. NULL with err filled if there is no server to talk to.
Store *store_connect(const char *host, int port, const char *token, double timeout_s, Error *err);
// Makes another client of the same server, with the same prefix, for use by another thread.
Store *store_clone(const Store *store, double timeout_s, Error *err);
void store_close(Store *store);
// Puts "prefix/" in front of the keys of all later calls, in place of an earlier prefix. The prefix
// "" takes it away.
void store_set_prefix(Store *store, const char *prefix);
// Adds to the prefix that the store has: "first/" becomes "first/prefix/".
void store_add_prefix(Store *store, const char *prefix);

int store_set(Store *store, const char *key, const void *value, size_t bytes, Error *err);
// Waits until the key exists and copies its value. *bytes is the room there is, and then the
// value's size.
int store_get(Store *store, const char *key, void *value, size_t *bytes, Error *err);
// Adds to a key that holds an integer, and writes the sum to *result. A missing key counts as 0.
int store_add(Store *store, const char *key, int64_t amount, int64_t *result, Error *err);
// If the key's value equals `expected` (a missing key equals ""), sets it to desired. *value gets
// what it holds afterwards.
int store_compare_set(Store *store, const char *key, const char *expected, const char *desired,
                      char *value, size_t capacity, Error *err);
int store_wait(Store *store, const char *key, double timeout_s, Error *err);

#endif
