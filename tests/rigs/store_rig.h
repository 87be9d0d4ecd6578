/* store_rig.h: a store server on a free port and one client, for tests of the store.
 */
#ifndef TESTS_RIGS_STORE_RIG_H
#define TESTS_RIGS_STORE_RIG_H

#include "tests/rigs/check.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp/store/net.h"
#include "ddp/store/protocol.h"
#include "ddp/store/store.h"

#define HOST  "127.0.0.1"
#define TOKEN "0123456789abcdef0123456789abcdef"

enum { LONG_S = 20 }; // a deadline that must not expire

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

// Closes stdin, as in a daemon, so that a descriptor may be 0: in every other test the server's, in
// the others the client's.
static inline int set_up(void **state) {
    static int tests;
    Error err = {0};
    Served *served = calloc(1, sizeof *served);
    close(STDIN_FILENO);
    int taken = tests++ % 2 ? open("/dev/null", O_RDONLY) : -1;
    served->server = store_serve(HOST, 0, TOKEN, &err);
    if (!served->server) fail_msg("%s", err.message);
    served->port = store_server_port(served->server);
    if (taken >= 0) close(taken);
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

// Asserts that the server still serves: the end of each test of hostile clients.
static inline void assert_alive(const Served *served) {
    Error err = {0};
    Store *other = new_client(served->port);
    assert_int_equal(store_set(other, "alive", "yes", 3, &err), 0);
    assert_holds(served->store, "alive", "yes");
    store_close(other);
}

// ---- clients that send raw bytes -----

static inline int raw_connect(int port) {
    Error err = {0};
    int fd = net_connect(HOST, port, clock_ns() + (uint64_t)LONG_S * 1000000000, &err);
    if (fd < 0) fail_msg("%s", err.message);
    return fd;
}

static inline void raw_send(int fd, const void *data, size_t bytes) {
    size_t moved = 0;
    uint64_t deadline = clock_ns() + (uint64_t)LONG_S * 1000000000;
    (void)net_move(fd, NET_SEND, (void *)(uintptr_t)data, bytes, &moved, deadline);
}

static inline NetResult raw_receive(int fd, void *data, size_t bytes) {
    size_t moved = 0;
    return net_move(fd, NET_RECEIVE, data, bytes, &moved,
                    clock_ns() + (uint64_t)LONG_S * 1000000000);
}

// Runs the handshake, in whole messages or byte by byte. Returns the server's verdict.
static inline StoreStatus raw_shake_hands(int fd, const char *token, bool in_bytes) {
    StoreNonces nonces = {.client = "a nonce that only a test takes"};
    uint8_t hello[STORE_HELLO_BYTES], proof[STORE_PROOF_BYTES], answer[STORE_ANSWER_BYTES];
    size_t part = in_bytes ? 1 : sizeof hello;
    store_write_hello(hello, nonces.client);
    for (size_t i = 0; i < sizeof hello; i += part) raw_send(fd, hello + i, part);
    assert_int_equal(raw_receive(fd, hello, sizeof hello), NET_DONE);
    assert_true(store_read_hello(hello, nonces.server));

    store_proof_make(proof, token, STORE_SIDE_CLIENT, &nonces);
    part = in_bytes ? 1 : sizeof proof;
    for (size_t i = 0; i < sizeof proof; i += part) raw_send(fd, proof + i, part);
    assert_int_equal(raw_receive(fd, answer, sizeof answer), NET_DONE);
    assert_memory_equal(answer, STORE_MAGIC, STORE_MAGIC_BYTES);
    return (StoreStatus)store_read_u32(answer + STORE_MAGIC_BYTES);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
