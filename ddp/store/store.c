/* store.c: the store's client (store.h).
 *
 * One request at a time. A call that times out leaves the connection usable: the late reply is
 * recognised by its id and dropped. A connection that breaks within a message stays broken, and
 * every further call fails with that error.
 */
#include "ddp/store/store.h"

#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "ddp/store/net.h"
#include "ddp/store/protocol.h"

enum { RETRY_MIN_MS = 10, RETRY_MAX_MS = 250 };

struct Store {
    int socket_fd;
    char *host;
    int port;
    char token[STORE_TOKEN_MAX + 1];
    double timeout_s;
    char prefix[STORE_KEY_MAX + 1]; // "" or "name/"
    uint32_t last_id;
    bool broken;
    size_t reply_moved; // of the reply header, received so far
    uint8_t reply[STORE_REPLY_BYTES];
    uint8_t *message; // [STORE_MESSAGE_MAX], request or value
};

typedef struct Request {
    StoreOp op;
    bool no_wait;
    const char *key;
    StoreBytes value, expected;
    double timeout_s; // 0: the store's
} Request;

// ---- Connecting

int store_make_token(char token[STORE_TOKEN_MAX + 1], Error *err) {
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set(err, STATUS_FAILED, "no random numbers: %s", strerror(errno));
    snprintf(token, STORE_TOKEN_MAX + 1, "%016jx%016jx", (uintmax_t)random[0],
             (uintmax_t)random[1]);
    return 0;
}

static int fail_stranger(const Store *store, Error *err) {
    return error_set(err, STATUS_USAGE, "what answers at %s:%d is not a store", store->host,
                     store->port);
}

// Sends one message of the handshake and receives the server's, of the given size; another
// protocol's is an error after STORE_MAGIC_BYTES, because its server may wait for more.
static int exchange(const Store *store, StoreBytes say, uint8_t *answer, size_t bytes,
                    uint64_t deadline_ns, Error *err) {
    size_t sent = 0, received = 0;
    void *message = (void *)(uintptr_t)say.data; // NET_SEND only reads it
    NetResult result = net_move(store->socket_fd, NET_SEND, message, say.bytes, &sent, deadline_ns);
    if (result == NET_DONE)
        result = net_move(store->socket_fd, NET_RECEIVE, answer, STORE_MAGIC_BYTES, &received,
                          deadline_ns);
    if (result == NET_DONE && memcmp(answer, STORE_MAGIC, STORE_MAGIC_BYTES) != 0)
        return fail_stranger(store, err);
    if (result == NET_DONE)
        result = net_move(store->socket_fd, NET_RECEIVE, answer, bytes, &received, deadline_ns);
    if (result == NET_DONE) return 0;
    return error_set(err, STATUS_FAILED, "%s:%d %s", store->host, store->port,
                     result == NET_TIMEOUT ? "accepts connections but does not answer"
                                           : "hangs up without an answer");
}

// Checks the server's reply to our proof, and its own proof.
static int judge_answer(const Store *store, const uint8_t answer[STORE_ANSWER_BYTES],
                        const StoreNonces *nonces, Error *err) {
    const uint8_t *status = answer + STORE_MAGIC_BYTES, *proof = status + 4;
    switch (store_read_u32(status)) {
    case STORE_DONE:
        if (store_proof_holds(proof, store->token, STORE_SIDE_SERVER, nonces)) return 0;
        return error_set(err, STATUS_USAGE,
                         "what answers at %s:%d does not know this job's token (DDPRUN_TOKEN): "
                         "it is not this job's store",
                         store->host, store->port);
    case STORE_WRONG_TOKEN:
        return error_set(err, STATUS_USAGE,
                         "the store at %s:%d belongs to another job: it refuses this token "
                         "(DDPRUN_TOKEN)",
                         store->host, store->port);
    case STORE_NO_ROOM:
        return error_set(err, STATUS_FAILED, "the store at %s:%d has no room for another client",
                         store->host, store->port);
    default:
        return fail_stranger(store, err);
    }
}

static int shake_hands(const Store *store, uint64_t deadline_ns, Error *err) {
    StoreNonces nonces;
    uint8_t hello[STORE_HELLO_BYTES], challenge[STORE_HELLO_BYTES];
    if (store_nonce_make(nonces.client, err) != 0) return -1;
    store_write_hello(hello, nonces.client);
    StoreBytes first = {hello, sizeof hello};
    if (exchange(store, first, challenge, sizeof challenge, deadline_ns, err) != 0) return -1;
    (void)store_read_hello(challenge, nonces.server); // exchange has compared its magic

    uint8_t proof[STORE_PROOF_BYTES], answer[STORE_ANSWER_BYTES];
    store_proof_make(proof, store->token, STORE_SIDE_CLIENT, &nonces);
    StoreBytes second = {proof, sizeof proof};
    if (exchange(store, second, answer, sizeof answer, deadline_ns, err) != 0) return -1;
    return judge_answer(store, answer, &nonces, err);
}

// Retries an attempt that failed with STATUS_FAILED.
static int connect_until(Store *store, Error *err) {
    uint64_t deadline_ns = clock_ns_after(store->timeout_s);
    for (long pause_ms = RETRY_MIN_MS;; pause_ms *= 2) {
        Error attempt = {0};
        store->socket_fd = net_connect(store->host, store->port, deadline_ns, &attempt);
        if (store->socket_fd >= 0) {
            if (shake_hands(store, deadline_ns, &attempt) == 0) return 0;
            close(store->socket_fd);
            store->socket_fd = -1;
        }
        if (attempt.status != STATUS_FAILED)
            return error_set(err, attempt.status, "%s", attempt.message);
        if (pause_ms > RETRY_MAX_MS) pause_ms = RETRY_MAX_MS;
        if (clock_ns() + (uint64_t)pause_ms * 1000000 >= deadline_ns)
            return error_set(err, STATUS_FAILED, "no store within %g s: %s", store->timeout_s,
                             attempt.message);
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL); // less after a signal
    }
}

Store *store_connect(const char *host, int port, const char *token, double timeout_s, Error *err) {
    if (clock_check_timeout(timeout_s, DBL_MIN, err) != 0) return NULL;
    if (net_check_port(port, 1, err) != 0) return NULL;
    if (strlen(token) > STORE_TOKEN_MAX)
        return error_null(err, STATUS_USAGE, "the job's token is longer than %d bytes",
                          STORE_TOKEN_MAX);
    Store *store = memory_zalloc(sizeof *store);
    store->host = memory_format("%s", host);
    store->port = port;
    store->timeout_s = timeout_s;
    strcpy(store->token, token);
    store->message = memory_zalloc(STORE_MESSAGE_MAX);
    if (connect_until(store, err) == 0) return store;
    store_close(store);
    return NULL;
}

Store *store_clone(const Store *store, double timeout_s, Error *err) {
    Store *clone = store_connect(store->host, store->port, store->token, timeout_s, err);
    if (clone) memcpy(clone->prefix, store->prefix, sizeof clone->prefix);
    return clone;
}

void store_close(Store *store) {
    if (!store) return;
    if (store->socket_fd >= 0) close(store->socket_fd);
    free(store->host);
    free(store->message);
    free(store);
}

bool store_is_connected(const Store *store) {
    return !store->broken;
}

void store_set_prefix(Store *store, const char *prefix) {
    store->prefix[0] = '\0';
    store_add_prefix(store, prefix);
}

void store_add_prefix(Store *store, const char *prefix) {
    size_t used = strlen(store->prefix);
    bool fits =
        format_append(store->prefix, sizeof store->prefix, "%s%s", prefix, *prefix ? "/" : "");
    CHECK(fits, "store prefix of %zu bytes", used + strlen(prefix) + 1);
}

// ---- Request and reply

// Writes the request to store->message. Returns its size; 0 with err filled if it is too large.
static size_t write_message(Store *store, const Request *ask, Error *err) {
    size_t prefix_bytes = strlen(store->prefix), key_bytes = prefix_bytes + strlen(ask->key);
    if (key_bytes == 0 || key_bytes > STORE_KEY_MAX) {
        error_set(err, STATUS_USAGE, "store key '%s%.40s' has %zu bytes, allowed are 1 to %d",
                  store->prefix, ask->key, key_bytes, STORE_KEY_MAX);
        return 0;
    }
    if (ask->value.bytes > STORE_VALUE_MAX || ask->expected.bytes > STORE_VALUE_MAX) {
        error_set(err, STATUS_USAGE, "value of store key '%s%s' is longer than %d bytes",
                  store->prefix, ask->key, STORE_VALUE_MAX);
        return 0;
    }
    StoreRequest header = {.id = ++store->last_id,
                           .op = (uint8_t)ask->op,
                           .no_wait = ask->no_wait,
                           .key_bytes = (uint32_t)key_bytes,
                           .value_bytes = (uint32_t)ask->value.bytes,
                           .expected_bytes = (uint32_t)ask->expected.bytes};
    uint8_t *at = store->message;
    store_write_request(at, &header);
    at += STORE_REQUEST_BYTES;
    memcpy(at, store->prefix, prefix_bytes);
    memcpy(at + prefix_bytes, ask->key, key_bytes - prefix_bytes);
    at += key_bytes;
    if (ask->value.bytes) memcpy(at, ask->value.data, ask->value.bytes);
    at += ask->value.bytes;
    if (ask->expected.bytes) memcpy(at, ask->expected.data, ask->expected.bytes);
    return (size_t)(at - store->message) + ask->expected.bytes;
}

static int fail_connection(Store *store, NetResult result, Error *err) {
    int cause = errno;
    store->broken = true;
    const char *why = "stopped in the middle of a message";
    if (result == NET_CLOSED) why = "closed the connection (has the process that serves it ended?)";
    if (result == NET_FAILED) why = strerror(cause);
    return error_set(err, STATUS_FAILED, "the store at %s:%d: %s", store->host, store->port, why);
}

// Receives one reply: its header into store->reply, its value into store->message. After a time-out
// the next call continues the header.
static NetResult receive_reply(Store *store, size_t *value_bytes, uint64_t deadline_ns) {
    NetResult result = net_move(store->socket_fd, NET_RECEIVE, store->reply, STORE_REPLY_BYTES,
                                &store->reply_moved, deadline_ns);
    if (result != NET_DONE) return result;
    store->reply_moved = 0;
    *value_bytes = store_read_u32(store->reply + 8);
    if (*value_bytes > STORE_VALUE_MAX) {
        errno = EPROTO;
        return NET_FAILED;
    }
    size_t moved = 0;
    result =
        net_move(store->socket_fd, NET_RECEIVE, store->message, *value_bytes, &moved, deadline_ns);
    if (result == NET_TIMEOUT) store->broken = true;
    return result;
}

static int fail_status(const Store *store, const char *key, StoreStatus status, Error *err) {
    const char *why = "does not understand the request";
    if (status == STORE_MISSING) why = "has no such key";
    if (status == STORE_FULL) why = "is full";
    if (status == STORE_NOT_INTEGER) why = "holds no integer there, or the sum does not fit";
    return error_set(err, STATUS_FAILED, "key '%s%s': the store at %s:%d %s", store->prefix, key,
                     store->host, store->port, why);
}

// Sends the request and waits for its reply; every status but STORE_DONE is an error. *value points
// into store->message until the next call.
static int call_server(Store *store, const Request *ask, StoreBytes *value, Error *err) {
    if (store->broken)
        return error_set(err, STATUS_FAILED, "the connection to the store at %s:%d is broken",
                         store->host, store->port);
    size_t bytes = write_message(store, ask, err), sent = 0;
    if (bytes == 0) return -1;
    double timeout_s = ask->timeout_s > 0 ? ask->timeout_s : store->timeout_s;
    uint64_t deadline_ns = clock_ns_after(timeout_s);
    NetResult result =
        net_move(store->socket_fd, NET_SEND, store->message, bytes, &sent, deadline_ns);
    if (result != NET_DONE) return fail_connection(store, result, err);
    do {
        result = receive_reply(store, &bytes, deadline_ns);
        if (result == NET_TIMEOUT)
            return error_set(err, STATUS_FAILED,
                             "timed out after %g s waiting for key '%s%s' in the store at %s:%d",
                             timeout_s, store->prefix, ask->key, store->host, store->port);
        if (result != NET_DONE) return fail_connection(store, result, err);
    } while (store_read_u32(store->reply) != store->last_id);
    const StoreStatus status = (StoreStatus)store_read_u32(store->reply + 4);
    *value = (StoreBytes){store->message, bytes};
    return status == STORE_DONE ? 0 : fail_status(store, ask->key, status, err);
}

// ---- The calls

int store_set(Store *store, const char *key, const void *value, size_t bytes, Error *err) {
    Request ask = {.op = STORE_OP_SET, .key = key, .value = {value, bytes}};
    StoreBytes nothing;
    return call_server(store, &ask, &nothing, err);
}

int store_get(Store *store, const char *key, void *value, size_t *bytes, Error *err) {
    Request ask = {.op = STORE_OP_GET, .key = key};
    StoreBytes found;
    if (call_server(store, &ask, &found, err) != 0) return -1;
    if (found.bytes > *bytes)
        return error_set(err, STATUS_FAILED, "store key '%s%s' holds %zu bytes, room is for %zu",
                         store->prefix, key, found.bytes, *bytes);
    memcpy(value, found.data, found.bytes);
    *bytes = found.bytes;
    return 0;
}

int store_add(Store *store, const char *key, int64_t amount, int64_t *result, Error *err) {
    uint8_t operand[8];
    store_put_i64(operand, amount);
    Request ask = {.op = STORE_OP_ADD, .key = key, .value = {operand, sizeof operand}};
    StoreBytes sum;
    if (call_server(store, &ask, &sum, err) != 0) return -1;
    if (sum.bytes != 8) return fail_status(store, key, STORE_BAD_REQUEST, err);
    *result = store_read_i64(sum.data);
    return 0;
}

int store_compare_set(Store *store, const char *key, const char *expected, const char *desired,
                      char *value, size_t capacity, Error *err) {
    Request ask = {.op = STORE_OP_COMPARE_SET,
                   .key = key,
                   .value = {(const uint8_t *)desired, strlen(desired)},
                   .expected = {(const uint8_t *)expected, strlen(expected)}};
    StoreBytes now;
    if (call_server(store, &ask, &now, err) != 0) return -1;
    if (now.bytes >= capacity)
        return error_set(err, STATUS_FAILED, "store key '%s%s' holds %zu bytes, room is for %zu",
                         store->prefix, key, now.bytes, capacity);
    memcpy(value, now.data, now.bytes);
    value[now.bytes] = '\0';
    return 0;
}

int store_wait(Store *store, const char *key, double timeout_s, Error *err) {
    if (clock_check_timeout(timeout_s < 0 ? 0 : timeout_s, 0, err) != 0) return -1;
    Request ask = {
        .op = STORE_OP_WAIT, .key = key, .no_wait = timeout_s <= 0, .timeout_s = timeout_s};
    StoreBytes nothing;
    return call_server(store, &ask, &nothing, err);
}
