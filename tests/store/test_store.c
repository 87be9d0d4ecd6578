/* test_store.c: the store over loopback: every call, every timeout, authentication. Connecting:
 * test_store_connect.c. Misbehaving and many clients: test_store_clients.c.
 */
#include "tests/rigs/store_rig.h"

#include <math.h>
#include <pthread.h>
#include <sys/socket.h>

#include "ddp/store/table.h"

// ---- The calls

static void test_set_get(void **state) {
    Served *served = *state;
    Error err = {0};
    assert_int_equal(store_set(served->store, "k", "one", 3, &err), 0);
    assert_holds(served->store, "k", "one");
    assert_int_equal(store_set(served->store, "k", "", 0, &err), 0); // an empty value is allowed
    assert_holds(served->store, "k", "");
    assert_int_equal(store_wait(served->store, "l", 0, &err), -1);
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
    // A buffer of exactly the value's size, and one a byte too small.
    assert_int_equal(store_set(served->store, "small", "value", 5, &err), 0);
    bytes = 5;
    assert_int_equal(store_get(served->store, "small", back, &bytes, &err), 0);
    assert_int_equal(bytes, 5);
    bytes = 4;
    err = (Error){0};
    assert_int_equal(store_get(served->store, "small", back, &bytes, &err), -1);
    assert_non_null(strstr(err.message, "holds 5 bytes, room is for 4"));
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
    assert_int_equal(store_add(served->store, "min", INT64_MIN, &sum, &err), 0);
    assert_true(sum == INT64_MIN);
    assert_int_equal(store_add(served->store, "min", -1, &sum, &err), -1);
    assert_int_equal(store_add(served->store, "min", 1, &sum, &err), 0); // still a counter
    assert_true(sum == INT64_MIN + 1);
}

// A counter is decimal text of at most 31 bytes, without further bytes, within 64 bits.
static void test_add_to_text(void **state) {
    Served *served = *state;
    static const struct {
        const char *text;
        int64_t sum; // after adding 2; 0: the text is no counter
    } cases[] = {
        {"40", 42},
        {"-40", -38},
        {"", 0},
        {"4x", 0},
        {"-", 0},
        {"0000000000000000000000000000007", 9}, // 31 bytes
        {"00000000000000000000000000000007", 0},
        {"9223372036854775805", INT64_MAX},
        {"9223372036854775806", 0},
        {"9223372036854775808", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        int64_t sum = 5;
        const char *text = cases[i].text;
        assert_int_equal(store_set(served->store, "n", text, strlen(text), &err), 0);
        int status = store_add(served->store, "n", 2, &sum, &err);
        assert_int_equal(status, cases[i].sum == 0 ? -1 : 0);
        assert_true(sum == (status == 0 ? cases[i].sum : 5));
        if (status == 0) continue;
        check_message(&err, "holds no integer there, or the sum does not fit");
        assert_holds(served->store, "n", text);
    }
    static const struct {
        const char *text;
        size_t bytes;
    } others[] = {{"", 1}, {"9223372036854775808", 19}, {"-9223372036854775809", 20}};
    for (size_t i = 0; i < 3; i++) // a NUL; values out of range, though the sum is not
        for (int64_t amount = -2; amount <= 2; amount += 2) {
            int64_t sum;
            Error err = {0};
            assert_int_equal(store_set(served->store, "n", others[i].text, others[i].bytes, &err),
                             0);
            assert_int_equal(store_add(served->store, "n", amount, &sum, &err), -1);
        }
}

static void test_compare_set(void **state) {
    Served *served = *state;
    Error err = {0};
    char now[16];
    Store *s = served->store;
    assert_int_equal(store_compare_set(s, "c", "other", "x", now, sizeof now, &err), 0);
    assert_string_equal(now, ""); // still no such key
    assert_int_equal(store_wait(s, "c", 0, &err), -1);
    err = (Error){0};
    assert_int_equal(store_compare_set(s, "c", "", "first", now, sizeof now, &err), 0);
    assert_string_equal(now, "first");
    assert_int_equal(store_compare_set(s, "c", "", "second", now, sizeof now, &err), 0);
    assert_string_equal(now, "first");
    // A prefix, a longer text, and another text of the same length do not match the value.
    static const char *const others[] = {"fir", "first!", "fires"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_compare_set(s, "c", others[i], "second", now, sizeof now, &err), 0);
        assert_string_equal(now, "first");
    }
    assert_int_equal(store_compare_set(s, "c", "first", "second", now, sizeof now, &err), 0);
    assert_string_equal(now, "second");
    assert_int_equal(store_compare_set(s, "c", "", "x", now, 6, &err), -1); // 7 with its NUL
    assert_int_equal(store_compare_set(s, "c", "", "x", now, 7, &err), 0);
    assert_string_equal(now, "second");
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
    store_add_prefix(other, "inner");
    assert_int_equal(store_set(other, "k", "lowest", 6, &err), 0);
    assert_holds(served->store, "attempt_1/inner/k", "lowest");
    store_set_prefix(other, "attempt_2"); // replaces both prefixes
    assert_int_equal(store_set(other, "k", "beside", 6, &err), 0);
    assert_holds(served->store, "attempt_2/k", "beside");
    store_set_prefix(other, "");
    assert_holds(other, "k", "plain");
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
    for (int64_t arrived = 0; arrived < WAITERS;) { // all are waiting or about to
        assert_int_equal(store_add(served->store, "waiters", 0, &arrived, &err), 0);
    }
    // Writing other keys, of any length, wakes no client.
    static const char *const others[] = {"l", "lat", "lata", "later", "another"};
    for (int i = 0; i < 5; i++)
        assert_int_equal(store_set(served->store, others[i], "no", 2, &err), 0);
    assert_int_equal(store_set(served->store, "late", "here", 4, &err), 0);
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].result, 0);
        assert_int_equal(waiters[i].bytes, 4);
        assert_memory_equal(waiters[i].value, "here", 4);
    }
}

// Requests of one connection in sequence: each has one reply with its id and value, and no byte
// follows the last. A present key is answered at once; a missing key is reported (no_wait), or the
// request is parked and dropped by the next request.
static void test_one_reply_to_each_request(void **state) {
    Served *served = *state;
    static const struct {
        StoreOp op;
        bool no_wait;
        const char *key;
        uint32_t status;
        const char *value; // of the reply; NULL: no reply yet
    } asks[] = {{STORE_OP_GET, true, "key", STORE_DONE, "here"},
                {STORE_OP_GET, false, "key", STORE_DONE, "here"},
                {STORE_OP_WAIT, true, "key", STORE_DONE, ""},
                {STORE_OP_GET, true, "no", STORE_MISSING, ""},
                {STORE_OP_GET, false, "late", 0, NULL},
                {STORE_OP_WAIT, true, "late", STORE_MISSING, ""},
                {STORE_OP_WAIT, false, "key", STORE_DONE, ""}};
    Error err = {0};
    int fd = raw_connect(served->port);
    assert_int_equal(store_set(served->store, "key", "here", 4, &err), 0);
    assert_int_equal(raw_shake_hands(fd, TOKEN, false), STORE_DONE);
    for (uint32_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        uint8_t message[STORE_REQUEST_BYTES + 16], reply[STORE_REPLY_BYTES + 16];
        const uint32_t key = (uint32_t)strlen(asks[i].key);
        store_write_request(message,
                            &(StoreRequest){i, (uint8_t)asks[i].op, asks[i].no_wait, key, 0, 0});
        memcpy(message + STORE_REQUEST_BYTES, asks[i].key, key);
        raw_send(fd, message, STORE_REQUEST_BYTES + key);
        if (!asks[i].value) continue;
        const size_t bytes = strlen(asks[i].value);
        assert_int_equal(raw_receive(fd, reply, STORE_REPLY_BYTES + bytes), NET_DONE);
        assert_int_equal(store_read_u32(reply), i);
        assert_int_equal(store_read_u32(reply + 4), asks[i].status);
        assert_int_equal(store_read_u32(reply + 8), bytes);
        assert_memory_equal(reply + STORE_REPLY_BYTES, asks[i].value, bytes);
    }
    assert_int_equal(store_set(served->store, "late", "x", 1, &err), 0);
    uint8_t nothing;
    assert_alive(served);
    assert_int_equal(recv(fd, &nothing, 1, MSG_DONTWAIT), -1);
    close(fd);
}

// Sends a request for a missing key, which the server parks.
static int raw_park(const Served *served, StoreOp op, const char *key) {
    uint8_t message[STORE_REQUEST_BYTES + 16];
    size_t bytes = strlen(key);
    StoreRequest ask = {.id = 3, .op = (uint8_t)op, .key_bytes = (uint32_t)bytes};
    store_write_request(message, &ask);
    memcpy(message + STORE_REQUEST_BYTES, key, bytes);
    int fd = raw_connect(served->port);
    assert_int_equal(raw_shake_hands(fd, TOKEN, false), STORE_DONE);
    raw_send(fd, message, STORE_REQUEST_BYTES + bytes);
    return fd;
}

static void assert_woken(int fd, const char *value) {
    uint8_t reply[STORE_REPLY_BYTES + 16];
    size_t bytes = strlen(value);
    assert_int_equal(raw_receive(fd, reply, STORE_REPLY_BYTES + bytes), NET_DONE);
    assert_int_equal(store_read_u32(reply), 3);
    assert_int_equal(store_read_u32(reply + 4), STORE_DONE);
    assert_int_equal(store_read_u32(reply + 8), bytes);
    assert_memory_equal(reply + STORE_REPLY_BYTES, value, bytes);
    close(fd);
}

// set, add and compare_set wake the clients that wait for the key by get or wait, and no others; a
// client that disconnected while it waited is forgotten.
static void test_every_write_wakes(void **state) {
    Served *served = *state;
    Error err = {0};
    char now[16];
    int64_t sum;
    int set = raw_park(served, STORE_OP_GET, "set"), wait = raw_park(served, STORE_OP_WAIT, "set");
    int gone = raw_park(served, STORE_OP_GET, "set"), add = raw_park(served, STORE_OP_GET, "add");
    int swap = raw_park(served, STORE_OP_GET, "cas"), never = raw_park(served, STORE_OP_GET, "no");
    close(gone);
    assert_alive(served); // the server has parked all requests
    assert_int_equal(store_set(served->store, "set", "one", 3, &err), 0);
    assert_woken(set, "one");
    assert_woken(wait, "");
    assert_int_equal(store_set(served->store, "set", "two", 3, &err), 0); // without waiters
    assert_int_equal(store_add(served->store, "add", -12, &sum, &err), 0);
    assert_woken(add, "-12");
    assert_int_equal(store_compare_set(served->store, "cas", "", "new", now, 16, &err), 0);
    assert_woken(swap, "new");
    size_t moved = 0;
    assert_int_equal(net_move(never, NET_RECEIVE, now, 1, &moved, 0), NET_TIMEOUT);
    close(never);
    assert_alive(served);
}

// A client that was woken and waits again does not delay another client that still waits.
static void test_woken_client_asks_again(void **state) {
    Served *served = *state;
    Error err = {0};
    uint8_t message[STORE_REQUEST_BYTES + 1], reply[STORE_REPLY_BYTES + 1];
    const int first = raw_park(served, STORE_OP_GET, "a");
    assert_alive(served);
    assert_int_equal(store_set(served->store, "a", "1", 1, &err), 0);
    assert_int_equal(raw_receive(first, reply, STORE_REPLY_BYTES + 1), NET_DONE);
    const int second = raw_park(served, STORE_OP_GET, "b");
    assert_alive(served);
    store_write_request(message, &(StoreRequest){.id = 4, .op = STORE_OP_WAIT, .key_bytes = 1});
    message[STORE_REQUEST_BYTES] = 'a';
    raw_send(first, message, sizeof message);
    assert_int_equal(raw_receive(first, reply, STORE_REPLY_BYTES), NET_DONE);
    assert_int_equal(store_set(served->store, "b", "2", 1, &err), 0);
    assert_woken(second, "2");
    close(first);
}

// A timeout of 0 or less only checks whether the key exists.
static void test_wait_without_time(void **state) {
    Served *served = *state;
    for (int seconds = -1; seconds <= 0; seconds++) {
        Error err = {0};
        assert_int_equal(store_wait(served->store, "missing", seconds, &err), -1);
        check_message(&err, "has no such key");
        assert_int_equal(store_set(served->store, "there", "", 0, &err), 0);
        assert_int_equal(store_wait(served->store, "there", seconds, &err), 0);
    }
    assert_int_equal(store_wait(served->store, "there", (double)NAN, &(Error){0}), -1);
}

// After a timeout the connection stays usable, and the late reply is not taken for the next call's.
static void test_timeout_then_reuse(void **state) {
    Served *served = *state;
    Error err = {0};
    uint64_t before = clock_ns();
    assert_int_equal(store_wait(served->store, "never", 0.05, &err), -1);
    assert_true(clock_ns() - before >= 50000000);
    assert_non_null(strstr(err.message, "timed out after 0.05 s waiting for key 'never'"));
    err = (Error){0}; // a second time: the server has dropped the first request
    assert_int_equal(store_wait(served->store, "nor this", 0.05, &err), -1);

    Store *other = new_client(served->port);
    err = (Error){0};
    assert_int_equal(store_set(other, "never", "after all", 9, &err), 0); // the late reply
    assert_int_equal(store_set(served->store, "k", "v", 1, &err), 0);
    assert_holds(served->store, "k", "v");
    assert_holds(served->store, "never", "after all");
    store_close(other);
    assert_alive(served);
}

// A request whose header announces more than the maximum is refused.
static void test_request_limits(void **state) {
    (void)state;
    uint8_t header[STORE_REQUEST_BYTES];
    StoreRequest request, fine = {.op = STORE_OP_COMPARE_SET,
                                  .key_bytes = STORE_KEY_MAX,
                                  .value_bytes = STORE_VALUE_MAX,
                                  .expected_bytes = STORE_VALUE_MAX};
    store_write_request(header, &fine);
    assert_true(store_read_request(header, &request));
    for (int i = 0; i < 3; i++) {
        StoreRequest large = fine;
        uint32_t *sizes[] = {&large.key_bytes, &large.value_bytes, &large.expected_bytes};
        ++*sizes[i];
        store_write_request(header, &large);
        assert_false(store_read_request(header, &request));
    }
    StoreRequest add = {.op = STORE_OP_ADD, .key_bytes = 1};
    for (add.value_bytes = 7; add.value_bytes <= 9; add.value_bytes++) {
        store_write_request(header, &add);
        assert_int_equal(store_read_request(header, &request), add.value_bytes == 8);
    }
    // Other operations have no expected value; the bytes after no_wait are 0.
    for (int op = 0; op <= STORE_OP_WAIT + 1; op++) {
        StoreRequest plain = {.op = (uint8_t)op, .no_wait = true, .key_bytes = 1};
        plain.value_bytes = op == STORE_OP_ADD ? 8 : 0;
        store_write_request(header, &plain);
        bool known = op >= STORE_OP_SET && op <= STORE_OP_WAIT;
        assert_int_equal(store_read_request(header, &request), known);
        assert_true(request.no_wait);
        plain.expected_bytes = 1;
        store_write_request(header, &plain);
        assert_int_equal(store_read_request(header, &request), op == STORE_OP_COMPARE_SET);
    }
    store_write_request(header, &fine);
    for (int at = 5; at < 8; at++) {
        uint8_t before = header[at];
        header[at] = at == 5 ? 2 : 1;
        assert_false(store_read_request(header, &request));
        header[at] = before;
    }
    assert_true(store_read_request(header, &request));
}

// The bytes of protocol version 2, so that clients and servers of different builds interoperate.
static void test_bytes_of_the_protocol(void **state) {
    (void)state;
    static const uint8_t wanted[STORE_REQUEST_BYTES] = {1, 2, 3, 4, 5, 1, 0, 0, 6, 0,
                                                        0, 0, 7, 1, 0, 0, 8, 0, 2, 0};
    uint8_t header[STORE_REQUEST_BYTES];
    store_write_request(header, &(StoreRequest){.id = 0x04030201,
                                                .op = STORE_OP_WAIT,
                                                .no_wait = true,
                                                .key_bytes = 6,
                                                .value_bytes = 0x107,
                                                .expected_bytes = 0x20008});
    assert_memory_equal(header, wanted, sizeof header);
    const int numbers[] = {STORE_OP_SET,  STORE_OP_GET,      STORE_OP_ADD, STORE_OP_COMPARE_SET,
                           STORE_MISSING, STORE_NOT_INTEGER, STORE_FULL,   STORE_BAD_REQUEST,
                           STORE_DONE,    STORE_WRONG_TOKEN, STORE_NO_ROOM};
    static const int in_version_2[] = {1, 2, 3, 4, 1, 2, 3, 4, 0, 5, 6};
    assert_memory_equal(numbers, in_version_2, sizeof numbers);
}

static void test_client_timeout_is_used(void **state) {
    Served *served = *state;
    Error err = {0};
    Store *hasty = store_connect(HOST, served->port, TOKEN, 1, &err);
    assert_non_null(hasty);
    char value[4];
    size_t bytes = sizeof value;
    assert_int_equal(store_get(hasty, "never", value, &bytes, &err), -1);
    assert_non_null(strstr(err.message, "timed out after 1 s"));
    store_close(hasty);
}

// ---- Authentication

// Tokens have 128 random bits: neither a token nor half of one repeats.
static void test_made_tokens(void **state) {
    (void)state;
    char tokens[2][STORE_TOKEN_MAX + 1];
    Error err = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_make_token(tokens[i], &err), 0);
        assert_int_equal(strspn(tokens[i], "0123456789abcdef"), 32);
        assert_int_equal(strlen(tokens[i]), 32);
        assert_memory_not_equal(tokens[i], tokens[i] + 16, 16);
    }
    assert_memory_not_equal(tokens[0], tokens[1], 16);
    assert_memory_not_equal(tokens[0] + 16, tokens[1] + 16, 16);
}

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

static void test_full_server(void **state) {
    Served *served = *state;
    uint8_t *value = calloc(1, STORE_VALUE_MAX);
    char key[16];
    Error err = {0};
    int stored = 0;
    for (; stored < 2000; stored++) {
        snprintf(key, sizeof key, "%d", stored);
        if (store_set(served->store, key, value, STORE_VALUE_MAX, &err) != 0) break;
    }
    assert_in_range(stored, 900, 1024);
    check_message(&err, "is full");
    assert_int_equal(store_set(served->store, "0", "short", 5, &err), 0); // replaces a long value
    assert_holds(served->store, "0", "short");
    assert_int_equal(store_wait(served->store, key, 0, &err), -1); // the value did not fit
    assert_int_equal(store_set(served->store, "small", "fits", 4, &err), 0);
    assert_holds(served->store, "small", "fits");
    free(value);
}

// ---- The table -----

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
    // Fill the table: an entry costs 64 bytes, including its tree node, plus key and value.
    size_t used = 0, entries = 0;
    for (; used <= STORE_TABLE_BYTES_MAX; entries++)
        used += 64 + (size_t)snprintf(key, sizeof key, "%zu", entries) + STORE_VALUE_MAX;
    assert_int_equal(stored, entries - 1);
    StoreBytes first = {(const uint8_t *)"0", 1}, found;
    assert_true(store_table_set(table, first, (StoreBytes){value, 8})); // a shorter value
    int bytes = snprintf(key, sizeof key, "%d", stored);
    StoreBytes name = {(uint8_t *)key, (size_t)bytes}; // fits now
    assert_true(store_table_set(table, name, (StoreBytes){value, STORE_VALUE_MAX - 64}));
    assert_true(store_table_get(table, first, &found));
    assert_int_equal(found.bytes, 8);
    store_table_close(table);
    free(value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SERVED(test_set_get),
        SERVED(test_large_values),
        SERVED(test_limits),
        SERVED(test_add),
        SERVED(test_add_to_text),
        SERVED(test_compare_set),
        SERVED(test_prefix),
        SERVED(test_get_waits_for_set),
        SERVED(test_one_reply_to_each_request),
        SERVED(test_every_write_wakes),
        SERVED(test_woken_client_asks_again),
        SERVED(test_wait_without_time),
        SERVED(test_timeout_then_reuse),
        cmocka_unit_test(test_request_limits),
        cmocka_unit_test(test_bytes_of_the_protocol),
        SERVED(test_client_timeout_is_used),
        cmocka_unit_test(test_made_tokens),
        SERVED(test_wrong_token),
        SERVED(test_full_server),
        cmocka_unit_test(test_table_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
