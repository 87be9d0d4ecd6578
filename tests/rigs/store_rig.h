/* store_rig.h: a server on a port of the system's choosing and one client, for the store's tests.
 */
#ifndef TESTS_RIGS_STORE_RIG_H
#define TESTS_RIGS_STORE_RIG_H

#include "tests/rigs/check.h"

#include "common/base/clock.h"
#include "ddp/store/net.h"
#include "ddp/store/protocol.h"
#include "ddp/store/store.h"

#define HOST  "127.0.0.1"
#define TOKEN "0123456789abcdef0123456789abcdef"

enum { LONG_S = 20 }; // a deadline that is not expected to pass

typedef struct Served {
    StoreServer *server;
    Store *store;
    int port;
} Served;

static inline Store *new_client(int port) {
    Error err = {0};
    Store *store = store_connect(HOST, port, TOKEN, LONG_S, &err);
    if (!store) fail_msg("%s", err.message);
    return store;
}

static inline int set_up(void **state) {
    Error err = {0};
    Served *served = calloc(1, sizeof *served);
    served->server = store_serve(HOST, 0, TOKEN, &err);
    if (!served->server) fail_msg("%s", err.message);
    served->port = store_server_port(served->server);
    served->store = new_client(served->port);
    *state = served;
    return 0;
}

static inline int tear_down(void **state) {
    Served *served = *state;
    store_close(served->store);
    store_server_close(served->server);
    free(served);
    return 0;
}

static inline void assert_holds(Store *store, const char *key, const char *expected) {
    Error err = {0};
    char value[64];
    size_t bytes = sizeof value;
    if (store_get(store, key, value, &bytes, &err) != 0) fail_msg("%s", err.message);
    assert_int_equal(bytes, strlen(expected));
    assert_memory_equal(value, expected, bytes);
}

// The server still serves: what every hostile test ends with.
static inline void assert_alive(const Served *served) {
    Error err = {0};
    Store *other = new_client(served->port);
    assert_int_equal(store_set(other, "alive", "yes", 3, &err), 0);
    assert_holds(served->store, "alive", "yes");
    store_close(other);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
