/* test_store.c: the store over loopback: every call, every timeout, and clients that misbehave. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "ddp/net.h"
#include "ddp/store_protocol.h"
#include "ddp/store_table.h"

#define HOST  "127.0.0.1"
#define TOKEN "0123456789abcdef0123456789abcdef"

enum { LONG_S = 20 }; // a deadline that is not expected to pass

typedef struct Served {
    StoreServer *server;
    Store *store;
    int port;
} Served;

static Store *new_client(int port) {
    Error err = {0};
    Store *store = store_connect(HOST, port, TOKEN, LONG_S, &err);
    if (!store) fail_msg("%s", err.message);
    return store;
}

static int set_up(void **state) {
    Error err = {0};
    Served *served = calloc(1, sizeof *served);
    served->server = store_serve(HOST, 0, TOKEN, &err);
    if (!served->server) fail_msg("%s", err.message);
    served->port = store_server_port(served->server);
    served->store = new_client(served->port);
    *state = served;
    return 0;
}

static int tear_down(void **state) {
    Served *served = *state;
    store_close(served->store);
    store_server_close(served->server);
    free(served);
    return 0;
}

static void assert_holds(Store *store, const char *key, const char *expected) {
    Error err = {0};
    char value[64];
    size_t bytes = sizeof value;
    if (store_get(store, key, value, &bytes, &err) != 0) fail_msg("%s", err.message);
    assert_int_equal(bytes, strlen(expected));
    assert_memory_equal(value, expected, bytes);
}

// The server still serves: what every hostile test ends with.
static void assert_alive(const Served *served) {
    Error err = {0};
    Store *other = new_client(served->port);
    assert_int_equal(store_set(other, "alive", "yes", 3, &err), 0);
    assert_holds(served->store, "alive", "yes");
    store_close(other);
}

// ---- The calls

static void test_set_get_delete(void **state) {
    Served *served = *state;
    Error err = {0};
    assert_int_equal(store_set(served->store, "k", "one", 3, &err), 0);
    assert_holds(served->store, "k", "one");
    assert_int_equal(store_set(served->store, "k", "", 0, &err), 0); // empty is a value
    assert_holds(served->store, "k", "");
    bool existed = false;
    assert_int_equal(store_delete(served->store, "k", &existed, &err), 0);
    assert_true(existed);
    assert_int_equal(store_delete(served->store, "k", &existed, &err), 0);
    assert_false(existed);
    assert_int_equal(store_wait(served->store, "k", 0, &err), -1);
    assert_non_null(strstr(err.message, "no such key"));
}

static void test_large_values(void **state) {
    Served *served = *state;
    Error err = {0};
    char *value = malloc(STORE_VALUE_MAX), *back = malloc(STORE_VALUE_MAX);
    for (size_t i = 0; i < STORE_VALUE_MAX; i++) value[i] = (char)(i * 31 >> 3);
    assert_int_equal(store_set(served->store, "big", value, STORE_VALUE_MAX, &err), 0);
    size_t bytes = STORE_VALUE_MAX;
    assert_int_equal(store_get(served->store, "big", back, &bytes, &err), 0);
    assert_int_equal(bytes, STORE_VALUE_MAX);
    assert_memory_equal(value, back, bytes);
    bytes = 10;
    assert_int_equal(store_get(served->store, "big", back, &bytes, &err), -1);
    assert_non_null(strstr(err.message, "holds 65536 bytes, room is for 10"));
    free(value);
    free(back);
    assert_alive(served);
}

static void test_limits(void **state) {
    Served *served = *state;
    char key[STORE_KEY_MAX + 2], *value = calloc(1, STORE_VALUE_MAX + 1);
    memset(key, 'k', sizeof key);
    key[STORE_KEY_MAX + 1] = '\0';
    Error err = {0};
    assert_int_equal(store_set(served->store, key, "v", 1, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    assert_non_null(strstr(err.message, "257 bytes, allowed are 1 to 256"));
    key[STORE_KEY_MAX] = '\0';
    err = (Error){0};
    assert_int_equal(store_set(served->store, key, "v", 1, &err), 0);
    assert_holds(served->store, key, "v");
    assert_int_equal(store_set(served->store, "", "v", 1, &err), -1);
    err = (Error){0};
    assert_int_equal(store_set(served->store, "k", value, STORE_VALUE_MAX + 1, &err), -1);
    assert_non_null(strstr(err.message, "longer than 65536"));
    free(value);
    assert_alive(served);
}

static void test_add(void **state) {
    Served *served = *state;
    Error err = {0};
    int64_t sum = -1;
    assert_int_equal(store_add(served->store, "n", 5, &sum, &err), 0);
    assert_int_equal(sum, 5);
    assert_int_equal(store_add(served->store, "n", -7, &sum, &err), 0);
    assert_int_equal(sum, -2);
    assert_holds(served->store, "n", "-2");
    assert_int_equal(store_add(served->store, "max", INT64_MAX, &sum, &err), 0);
    assert_true(sum == INT64_MAX);
    assert_int_equal(store_add(served->store, "max", 1, &sum, &err), -1);
    assert_int_equal(store_set(served->store, "text", "abc", 3, &err), 0);
    err = (Error){0};
    assert_int_equal(store_add(served->store, "text", 1, &sum, &err), -1);
    assert_non_null(strstr(err.message, "no integer"));
    assert_holds(served->store, "text", "abc");
}

static void test_compare_set(void **state) {
    Served *served = *state;
    Error err = {0};
    char now[16];
    Store *s = served->store;
    assert_int_equal(store_compare_set(s, "c", "other", "x", now, sizeof now, &err), 0);
    assert_string_equal(now, ""); // still missing
    assert_int_equal(store_wait(s, "c", 0, &err), -1);
    err = (Error){0};
    assert_int_equal(store_compare_set(s, "c", "", "first", now, sizeof now, &err), 0);
    assert_string_equal(now, "first");
    assert_int_equal(store_compare_set(s, "c", "", "second", now, sizeof now, &err), 0);
    assert_string_equal(now, "first");
    assert_int_equal(store_compare_set(s, "c", "first", "second", now, sizeof now, &err), 0);
    assert_string_equal(now, "second");
    assert_int_equal(store_compare_set(s, "c", "", "x", now, 3, &err), -1); // room for 2 bytes
}

static void test_prefix(void **state) {
    Served *served = *state;
    Error err = {0};
    Store *other = new_client(served->port);
    store_set_prefix(other, "attempt_1");
    assert_int_equal(store_set(served->store, "k", "plain", 5, &err), 0);
    assert_int_equal(store_wait(other, "k", 0, &err), -1);
    assert_non_null(strstr(err.message, "attempt_1/k"));
    err = (Error){0};
    assert_int_equal(store_set(other, "k", "below", 5, &err), 0);
    assert_holds(served->store, "k", "plain");
    assert_holds(served->store, "attempt_1/k", "below");
    store_close(other);
}

// ---- Waiting

typedef struct Waiter {
    int port;
    char value[16];
    size_t bytes;
    int result;
} Waiter;

static void *wait_for_key(void *argument) {
    Waiter *waiter = argument;
    Error err = {0};
    Store *store = store_connect(HOST, waiter->port, TOKEN, LONG_S, &err);
    waiter->bytes = sizeof waiter->value;
    int64_t arrived = 0;
    waiter->result = -1;
    if (store && store_add(store, "waiters", 1, &arrived, &err) == 0) {
        waiter->result = store_get(store, "late", waiter->value, &waiter->bytes, &err);
    }
    store_close(store);
    return NULL;
}

static void test_get_waits_for_set(void **state) {
    Served *served = *state;
    enum { WAITERS = 8 };
    pthread_t threads[WAITERS];
    Waiter waiters[WAITERS];
    Error err = {0};
    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = (Waiter){.port = served->port};
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_key, &waiters[i]), 0);
    }
    for (int64_t arrived = 0; arrived < WAITERS;) { // all are about to ask, or have asked
        assert_int_equal(store_add(served->store, "waiters", 0, &arrived, &err), 0);
    }
    assert_int_equal(store_set(served->store, "late", "here", 4, &err), 0);
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].result, 0);
        assert_int_equal(waiters[i].bytes, 4);
        assert_memory_equal(waiters[i].value, "here", 4);
    }
}

// A call that ran out of time leaves the connection usable, and its late reply is not mistaken for
// the next call's.
static void test_timeout_then_reuse(void **state) {
    Served *served = *state;
    Error err = {0};
    uint64_t before = clock_ns();
    assert_int_equal(store_wait(served->store, "never", 0.05, &err), -1);
    assert_true(clock_ns() - before >= 50000000);
    assert_non_null(strstr(err.message, "timed out after 0.05 s waiting for key 'never'"));

    Store *other = new_client(served->port);
    err = (Error){0};
    assert_int_equal(store_set(other, "never", "after all", 9, &err), 0); // the late reply
    assert_int_equal(store_set(served->store, "k", "v", 1, &err), 0);
    assert_holds(served->store, "k", "v");
    assert_holds(served->store, "never", "after all");
    store_close(other);
}

static void test_client_timeout_is_used(void **state) {
    Served *served = *state;
    Error err = {0};
    Store *hasty = store_connect(HOST, served->port, TOKEN, 0.05, &err);
    assert_non_null(hasty);
    char value[4];
    size_t bytes = sizeof value;
    assert_int_equal(store_get(hasty, "never", value, &bytes, &err), -1);
    assert_non_null(strstr(err.message, "timed out after 0.05 s"));
    store_close(hasty);
}

// ---- Who may talk

static void test_wrong_token(void **state) {
    Served *served = *state;
    const char *wrong[] = {"", "0123456789abcdef0123456789abcdeF", TOKEN "0"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        Error err = {0};
        assert_null(store_connect(HOST, served->port, wrong[i], LONG_S, &err));
        assert_int_equal(err.status, STATUS_USAGE);
        assert_non_null(strstr(err.message, "another job"));
    }
    assert_alive(served);
}

static void test_nobody_there(void **state) {
    (void)state;
    Error err = {0};
    int listener = net_listen(HOST, 0, &err), port = net_port(listener);
    close(listener);
    assert_null(store_connect(HOST, port, TOKEN, 0.1, &err));
    assert_non_null(strstr(err.message, "no store within 0.1 s"));
    assert_non_null(strstr(err.message, strerror(ECONNREFUSED)));
}

static void *serve_late(void *argument) {
    int *port = argument;
    Error err = {0};
    struct timespec pause = {.tv_nsec = 50000000};
    nanosleep(&pause, NULL);
    return store_serve(HOST, *port, TOKEN, &err);
}

static void test_connect_before_serve(void **state) {
    (void)state;
    Error err = {0};
    int listener = net_listen(HOST, 0, &err), port = net_port(listener);
    close(listener);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, serve_late, &port), 0);
    Store *store = new_client(port);
    void *server = NULL;
    pthread_join(thread, &server);
    assert_int_equal(store_set(store, "k", "v", 1, &err), 0);
    store_close(store);
    store_server_close(server);
}

static void test_port_in_use(void **state) {
    Served *served = *state;
    Error err = {0};
    assert_null(store_serve(HOST, served->port, TOKEN, &err));
    char holder[64];
    snprintf(holder, sizeof holder, "pid %d)", getpid());
    assert_non_null(strstr(err.message, strerror(EADDRINUSE)));
    assert_non_null(strstr(err.message, holder));
}

// Bound to 127.0.0.1 and nothing wider: another loopback address finds nobody.
static void test_binds_narrowly(void **state) {
    Served *served = *state;
    Error err = {0};
    int fd = net_connect("127.0.0.2", served->port, clock_ns() + 1000000000, &err);
    assert_int_equal(fd, -1);
}

static void test_server_gone(void **state) {
    (void)state;
    Error err = {0};
    StoreServer *server = store_serve(HOST, 0, TOKEN, &err);
    int port = store_server_port(server);
    Store *store = new_client(port);
    store_server_close(server);
    assert_int_equal(store_set(store, "k", "v", 1, &err), -1);
    assert_non_null(strstr(err.message, "closed the connection"));
    err = (Error){0};
    assert_int_equal(store_set(store, "k", "v", 1, &err), -1);
    assert_non_null(strstr(err.message, "broken"));
    store_close(store);
    server = store_serve(HOST, port, TOKEN, &err); // the port is free at once
    assert_non_null(server);
    store_server_close(server);
}

// ---- Clients that misbehave

static int raw_connect(const Served *served) {
    Error err = {0};
    int fd = net_connect(HOST, served->port, clock_ns() + (uint64_t)LONG_S * 1000000000, &err);
    assert_true(fd >= 0);
    return fd;
}

static void raw_send(int fd, const void *data, size_t bytes) {
    size_t moved = 0;
    uint64_t deadline = clock_ns() + (uint64_t)LONG_S * 1000000000;
    (void)net_move(fd, NET_SEND, (void *)(uintptr_t)data, bytes, &moved, deadline);
}

static NetResult raw_receive(int fd, void *data, size_t bytes) {
    size_t moved = 0;
    return net_move(fd, NET_RECEIVE, data, bytes, &moved,
                    clock_ns() + (uint64_t)LONG_S * 1000000000);
}

static int raw_greeted(const Served *served) {
    uint8_t greeting[STORE_GREETING_BYTES], answer[STORE_ANSWER_BYTES];
    int fd = raw_connect(served);
    store_write_greeting(greeting, TOKEN);
    raw_send(fd, greeting, sizeof greeting);
    assert_int_equal(raw_receive(fd, answer, sizeof answer), NET_DONE);
    assert_int_equal(store_read_u32(answer + STORE_MAGIC_BYTES), STORE_DONE);
    return fd;
}

static void test_garbage(void **state) {
    Served *served = *state;
    const char *http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    int fd = raw_connect(served);
    raw_send(fd, http, strlen(http));
    char byte;
    assert_int_equal(raw_receive(fd, &byte, 1), NET_CLOSED); // at once, not after the time to greet
    close(fd);
    uint64_t x = 88172645463325252u; // xorshift: any bytes, but the same in each run
    for (int round = 0; round < 200; round++) {
        uint8_t noise[64];
        for (size_t i = 0; i < sizeof noise; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            noise[i] = (uint8_t)x;
        }
        fd = round % 2 ? raw_greeted(served) : raw_connect(served); // before and after the token
        raw_send(fd, noise, 1 + (size_t)(x % sizeof noise));
        close(fd);
    }
    assert_alive(served);
}

static void test_half_messages(void **state) {
    Served *served = *state;
    uint8_t greeting[STORE_GREETING_BYTES], header[STORE_REQUEST_BYTES];
    store_write_greeting(greeting, TOKEN);
    StoreRequest set = {.id = 1, .op = STORE_OP_SET, .key_bytes = 1, .value_bytes = 60000};
    store_write_request(header, &set);
    int open[2 * STORE_REQUEST_BYTES], count = 0;
    for (size_t cut = 1; cut <= STORE_REQUEST_BYTES; cut++) {
        int early = raw_connect(served), late = raw_greeted(served);
        raw_send(early, greeting, cut * 3);
        raw_send(late, header, cut);
        open[count++] = early;
        open[count++] = late;
    }
    assert_alive(served); // while all of them still hang
    for (int i = 0; i < count; i++) close(open[i]);
    assert_alive(served);
    Error err = {0};
    assert_int_equal(store_wait(served->store, "k", 0, &err), -1); // no half value was stored
}

static void test_byte_by_byte(void **state) {
    Served *served = *state;
    uint8_t message[STORE_GREETING_BYTES + STORE_REQUEST_BYTES + 4], answer[64];
    StoreRequest set = {.id = 7, .op = STORE_OP_SET, .key_bytes = 2, .value_bytes = 2};
    store_write_greeting(message, TOKEN);
    store_write_request(message + STORE_GREETING_BYTES, &set);
    memcpy(message + STORE_GREETING_BYTES + STORE_REQUEST_BYTES, "kkvv", 4);
    int fd = raw_connect(served);
    for (size_t i = 0; i < sizeof message; i++) raw_send(fd, &message[i], 1);
    assert_int_equal(raw_receive(fd, answer, STORE_ANSWER_BYTES + STORE_REPLY_BYTES), NET_DONE);
    assert_int_equal(store_read_u32(answer + STORE_ANSWER_BYTES), 7);
    close(fd);
    assert_holds(served->store, "kk", "vv");
}

static void test_broken_requests(void **state) {
    Served *served = *state;
    const StoreRequest broken[] = {
        {.id = 1, .op = 0, .key_bytes = 1},
        {.id = 1, .op = 99, .key_bytes = 1},
        {.id = 1, .op = STORE_OP_GET, .key_bytes = 0},
        {.id = 1, .op = STORE_OP_GET, .key_bytes = STORE_KEY_MAX + 1},
        {.id = 1, .op = STORE_OP_SET, .key_bytes = 1, .value_bytes = STORE_VALUE_MAX + 1},
        {.id = 1, .op = STORE_OP_SET, .key_bytes = 1, .value_bytes = UINT32_MAX},
        {.id = 1, .op = STORE_OP_SET, .key_bytes = UINT32_MAX, .value_bytes = UINT32_MAX},
        {.id = 1, .op = STORE_OP_SET, .key_bytes = 1, .expected_bytes = 1},
        {.id = 1, .op = STORE_OP_ADD, .key_bytes = 1, .value_bytes = 7},
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        uint8_t header[STORE_REQUEST_BYTES], reply[STORE_REPLY_BYTES], byte;
        int fd = raw_greeted(served);
        store_write_request(header, &broken[i]);
        raw_send(fd, header, sizeof header);
        assert_int_equal(raw_receive(fd, reply, sizeof reply), NET_DONE);
        assert_int_equal(store_read_u32(reply + 4), STORE_BAD_REQUEST);
        assert_int_equal(raw_receive(fd, &byte, 1), NET_CLOSED);
        close(fd);
    }
    assert_alive(served);
}

// Asks for a large value again and again and never reads: the server stops reading from it.
static void test_client_that_never_reads(void **state) {
    Served *served = *state;
    Error err = {0};
    char *value = calloc(1, STORE_VALUE_MAX);
    assert_int_equal(store_set(served->store, "big", value, STORE_VALUE_MAX, &err), 0);
    uint8_t message[STORE_REQUEST_BYTES + 3];
    StoreRequest get = {.id = 1, .op = STORE_OP_GET, .key_bytes = 3};
    store_write_request(message, &get);
    memcpy(message + STORE_REQUEST_BYTES, "big", 3);
    int fd = raw_greeted(served);
    size_t moved = 0;
    for (int i = 0; i < 20000; i++) { // until its own send buffer is full, or all are on their way
        moved = 0;
        if (net_move(fd, NET_SEND, message, sizeof message, &moved, 0) != NET_DONE) break;
    }
    assert_alive(served);
    close(fd);
    free(value);
    assert_alive(served);
}

// ---- Many

static void test_hundreds_of_clients(void **state) {
    Served *served = *state;
    enum { CLIENTS = 600 };
    static const char *key = "shared";
    Store *clients[CLIENTS];
    Error err = {0};
    int64_t sum = 0;
    for (int i = 0; i < CLIENTS; i++) clients[i] = new_client(served->port);
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(store_add(clients[i], key, i, &sum, &err), 0);
    }
    assert_int_equal(sum, CLIENTS * (CLIENTS - 1) / 2);
    for (int i = 0; i < CLIENTS; i++) store_close(clients[i]);
    assert_alive(served);
}

enum { ADDERS = 8, ADDS = 500 };

static void *add_many(void *argument) {
    const Served *served = argument;
    Error err = {0};
    Store *store = store_connect(HOST, served->port, TOKEN, LONG_S, &err);
    int64_t sum = 0;
    for (int i = 0; store && i < ADDS; i++) {
        if (store_add(store, "counter", 1, &sum, &err) != 0) break;
    }
    store_close(store);
    return NULL;
}

static void test_concurrent_adds(void **state) {
    Served *served = *state;
    pthread_t threads[ADDERS];
    for (int i = 0; i < ADDERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, served), 0);
    }
    for (int i = 0; i < ADDERS; i++) pthread_join(threads[i], NULL);
    char expected[16];
    snprintf(expected, sizeof expected, "%d", ADDERS * ADDS);
    assert_holds(served->store, "counter", expected);
}

// A process that may open few descriptors serves few clients, says so to the others, and goes on.
static _Noreturn void serve_few(int port_fd) {
    const struct rlimit few = {160, 160};
    Error err = {0};
    alarm(60); // whatever happens, no test leaves a process behind
    int port = 0;
    StoreServer *server =
        setrlimit(RLIMIT_NOFILE, &few) == 0 ? store_serve(HOST, 0, TOKEN, &err) : NULL;
    if (server) port = store_server_port(server);
    if (write(port_fd, &port, sizeof port) != sizeof port) _exit(1);
    for (;;) pause();
}

static void test_refuses_beyond_its_limit(void **state) {
    (void)state;
    enum { TRIED = 120 };
    Store *clients[TRIED];
    int ends[2], port = 0, accepted = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) serve_few(ends[1]);
    assert_int_equal(read(ends[0], &port, sizeof port), sizeof port);
    Error refused = {0};
    for (; accepted < TRIED; accepted++) {
        clients[accepted] = store_connect(HOST, port, TOKEN, 0.2, &refused);
        if (!clients[accepted]) break;
    }
    assert_in_range(accepted, 16, TRIED - 1);
    assert_non_null(strstr(refused.message, "no room for another client"));
    Error err = {0};
    assert_int_equal(store_set(clients[0], "k", "v", 1, &err), 0); // nobody else is harmed
    for (int i = 0; i < accepted; i++) store_close(clients[i]);
    store_close(new_client(port)); // and there is room again
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

// ---- The table alone

static void test_table_is_bounded(void **state) {
    (void)state;
    StoreTable *table = store_table_open();
    uint8_t *value = calloc(1, STORE_VALUE_MAX);
    char key[16];
    int stored = 0;
    for (; stored < 100000; stored++) {
        int bytes = snprintf(key, sizeof key, "%d", stored);
        StoreBytes name = {(uint8_t *)key, (size_t)bytes};
        if (!store_table_set(table, name, (StoreBytes){value, STORE_VALUE_MAX})) break;
    }
    assert_in_range(stored, 900, 1024); // 64 MiB of 64 KiB values
    StoreBytes first = {(const uint8_t *)"0", 1}, found;
    assert_true(store_table_delete(table, first));
    assert_false(store_table_get(table, first, &found));
    assert_true(store_table_set(table, first, (StoreBytes){value, 8})); // room again
    assert_true(store_table_get(table, first, &found));
    assert_int_equal(found.bytes, 8);
    store_table_close(table);
    free(value);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        SERVED(test_set_get_delete),
        SERVED(test_large_values),
        SERVED(test_limits),
        SERVED(test_add),
        SERVED(test_compare_set),
        SERVED(test_prefix),
        SERVED(test_get_waits_for_set),
        SERVED(test_timeout_then_reuse),
        SERVED(test_client_timeout_is_used),
        SERVED(test_wrong_token),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_connect_before_serve),
        SERVED(test_port_in_use),
        SERVED(test_binds_narrowly),
        cmocka_unit_test(test_server_gone),
        SERVED(test_garbage),
        SERVED(test_half_messages),
        SERVED(test_byte_by_byte),
        SERVED(test_broken_requests),
        SERVED(test_client_that_never_reads),
        SERVED(test_hundreds_of_clients),
        SERVED(test_concurrent_adds),
        cmocka_unit_test(test_refuses_beyond_its_limit),
        cmocka_unit_test(test_table_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
