/* store_server.c: the serving side of the store (store.h): one thread, one poll(2).
 *
 * Everything here belongs to that thread once it runs; the only message to it is "stop", through an
 * eventfd. No call on a client's socket ever waits. Per connection there is at most one message
 * being read, one request that waits for its key ("parked") and one reply being sent; while a reply
 * is unsent nothing more is read from that client, so a client that never reads costs a buffer and
 * no more. Whoever breaks the protocol, or has not shown the token in time, is hung up on.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/net.h"
#include "ddp/store_protocol.h"
#include "ddp/store_table.h"

enum {
    CLIENTS_MAX = 8192,
    STRANGERS_MAX = 64,    // connections beyond the clients' limit, kept to be told that it is full
    DESCRIPTORS_KEPT = 64, // for the rest of the process
    ACCEPTS_PER_ROUND = 64,
    GREETING_MS = 5000,
    PAUSE_MS = 100, // before accepting again after running out of descriptors
};

typedef struct Buffer {
    uint8_t *data;
    size_t used, capacity;
} Buffer;

typedef struct Connection {
    int fd;
    bool greeted;  // has shown the token
    bool hang_up;  // as soon as the reply is out
    bool finished; // to be removed in this round
    uint64_t greet_by_ns;
    Buffer in; // the greeting, or one request
    Buffer out;
    size_t out_sent;
    bool parked; // a request waits for parked_key
    StoreRequest parked_request;
    uint8_t parked_key[STORE_KEY_MAX];
} Connection;

struct StoreServer {
    pthread_t thread;
    int listener, stop_fd, port;
    uint8_t greeting[STORE_GREETING_BYTES]; // what a client must say
    StoreTable *table;
    size_t client_limit, clients; // greeted ones
    Connection *connections;      // [count]
    struct pollfd *polls;         // [2 + count]: stop, listener, connections in the same order
    size_t count, capacity;
    uint64_t accept_again_ns; // not before
};

// ---- Buffers and replies

static void buffer_reserve(Buffer *buffer, size_t bytes) {
    if (buffer->capacity >= bytes) return;
    buffer->data = memory_grow(buffer->data, bytes, 1);
    buffer->capacity = bytes;
}

static void buffer_append(Buffer *buffer, const void *data, size_t bytes) {
    if (!bytes) return;
    buffer_reserve(buffer, buffer->used + bytes);
    memcpy(buffer->data + buffer->used, data, bytes);
    buffer->used += bytes;
}

// Empties it; big ones are given back, so that a large value is not paid for ever after.
static void buffer_reset(Buffer *buffer) {
    buffer->used = 0;
    if (buffer->capacity <= 4096) return;
    free(buffer->data);
    *buffer = (Buffer){0};
}

static void send_pending(Connection *c) {
    NetResult result = net_move(c->fd, NET_SEND, c->out.data, c->out.used, &c->out_sent, 0);
    if (result == NET_TIMEOUT) return;
    if (result != NET_DONE || c->hang_up) c->finished = true;
    c->out_sent = 0;
    buffer_reset(&c->out);
}

static void reply(Connection *c, uint32_t id, StoreStatus status, StoreBytes value) {
    uint8_t header[STORE_REPLY_BYTES];
    store_put_u32(header, id);
    store_put_u32(header + 4, (uint32_t)status);
    store_put_u32(header + 8, (uint32_t)value.bytes);
    buffer_append(&c->out, header, sizeof header);
    buffer_append(&c->out, value.data, value.bytes);
    send_pending(c);
}

static void reply_status(Connection *c, uint32_t id, StoreStatus status) {
    reply(c, id, status, (StoreBytes){0});
}

// ---- Requests

static bool same_bytes(StoreBytes a, StoreBytes b) {
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

// Answers a get or a wait if the key is there.
static bool answer_if_present(StoreServer *server, Connection *c, const StoreRequest *request,
                              StoreBytes key) {
    StoreBytes value = {0};
    if (!store_table_get(server->table, key, &value)) return false;
    if (request->op == STORE_OP_WAIT) value.bytes = 0;
    reply(c, request->id, STORE_DONE, value);
    return true;
}

static void wake_parked(StoreServer *server, StoreBytes key) {
    for (size_t i = 0; i < server->count; i++) {
        Connection *c = &server->connections[i];
        StoreBytes wanted = {c->parked_key, c->parked_request.key_bytes};
        if (!c->parked || !same_bytes(wanted, key)) continue;
        c->parked = false;
        (void)answer_if_present(server, c, &c->parked_request, key);
    }
}

static StoreStatus set_and_wake(StoreServer *server, StoreBytes key, StoreBytes value) {
    if (!store_table_set(server->table, key, value)) return STORE_FULL;
    wake_parked(server, key);
    return STORE_DONE;
}

static void get_or_park(StoreServer *server, Connection *c, const StoreRequest *request,
                        StoreBytes key) {
    if (answer_if_present(server, c, request, key)) return;
    if (request->no_wait) {
        reply_status(c, request->id, STORE_MISSING);
        return;
    }
    c->parked = true;
    c->parked_request = *request;
    memcpy(c->parked_key, key.data, key.bytes);
}

// An integer is kept as decimal text, so that a get of a counter can be read.
static StoreStatus add(StoreServer *server, StoreBytes key, int64_t amount, int64_t *sum) {
    StoreBytes old = {0};
    char text[32] = "0";
    if (store_table_get(server->table, key, &old)) {
        if (old.bytes == 0 || old.bytes >= sizeof text) return STORE_NOT_INTEGER;
        memcpy(text, old.data, old.bytes);
        text[old.bytes] = '\0';
    }
    char *end = text;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') return STORE_NOT_INTEGER;
    if (__builtin_add_overflow((int64_t)value, amount, sum)) return STORE_NOT_INTEGER;
    int bytes = snprintf(text, sizeof text, "%lld", (long long)*sum);
    return set_and_wake(server, key, (StoreBytes){(uint8_t *)text, (size_t)bytes});
}

static void reply_add(StoreServer *server, Connection *c, const StoreRequest *request,
                      StoreBytes key, StoreBytes value) {
    uint8_t bytes[8];
    int64_t sum = 0;
    StoreStatus status = add(server, key, store_read_i64(value.data), &sum);
    store_put_i64(bytes, sum);
    reply(c, request->id, status, (StoreBytes){bytes, sizeof bytes});
}

static void reply_compare_set(StoreServer *server, Connection *c, const StoreRequest *request,
                              StoreBytes key, StoreBytes desired, StoreBytes expected) {
    StoreBytes now = {0};
    (void)store_table_get(server->table, key, &now); // a missing key equals ""
    if (!same_bytes(now, expected)) {
        reply(c, request->id, STORE_DONE, now);
        return;
    }
    StoreStatus status = set_and_wake(server, key, desired);
    reply(c, request->id, status, desired);
}

static void execute(StoreServer *server, Connection *c, const StoreRequest *request) {
    StoreBytes key = {c->in.data + STORE_REQUEST_BYTES, request->key_bytes};
    StoreBytes value = {key.data + key.bytes, request->value_bytes};
    StoreBytes expected = {value.data + value.bytes, request->expected_bytes};
    c->parked = false; // the client gave up on what it asked before
    switch ((StoreOp)request->op) {
    case STORE_OP_SET:
        reply_status(c, request->id, set_and_wake(server, key, value));
        break;
    case STORE_OP_GET:
    case STORE_OP_WAIT:
        get_or_park(server, c, request, key);
        break;
    case STORE_OP_ADD:
        reply_add(server, c, request, key, value);
        break;
    case STORE_OP_COMPARE_SET:
        reply_compare_set(server, c, request, key, value, expected);
        break;
    case STORE_OP_DELETE: {
        bool existed = store_table_delete(server->table, key);
        reply_status(c, request->id, existed ? STORE_DONE : STORE_MISSING);
        break;
    }
    }
}

// ---- Reading

static void answer_greeting(StoreServer *server, Connection *c) {
    StoreStatus status = STORE_DONE;
    if (!store_greeting_matches(c->in.data, server->greeting)) status = STORE_WRONG_TOKEN;
    if (status == STORE_DONE && server->clients >= server->client_limit) status = STORE_NO_ROOM;
    c->greeted = status == STORE_DONE;
    c->hang_up = !c->greeted;
    if (c->greeted) server->clients++;

    uint8_t answer[STORE_ANSWER_BYTES];
    memcpy(answer, STORE_MAGIC, STORE_MAGIC_BYTES);
    store_put_u32(answer + STORE_MAGIC_BYTES, (uint32_t)status);
    buffer_append(&c->out, answer, sizeof answer);
    send_pending(c);
}

// Reads until `in` holds `bytes`. False: not yet, or the client is gone.
static bool fill(Connection *c, size_t bytes) {
    buffer_reserve(&c->in, bytes);
    NetResult result = net_move(c->fd, NET_RECEIVE, c->in.data, bytes, &c->in.used, 0);
    if (result == NET_CLOSED || result == NET_FAILED) c->finished = true;
    return result == NET_DONE;
}

static void read_greeting(StoreServer *server, Connection *c) {
    bool whole = fill(c, STORE_GREETING_BYTES);
    size_t magic = c->in.used < STORE_MAGIC_BYTES ? c->in.used : STORE_MAGIC_BYTES;
    if (memcmp(c->in.data, STORE_MAGIC, magic) != 0) {
        c->finished = true; // some other protocol: no answer would mean anything to it
        return;
    }
    if (!whole) return;
    answer_greeting(server, c);
    buffer_reset(&c->in);
}

static void read_request(StoreServer *server, Connection *c) {
    if (c->in.used < STORE_REQUEST_BYTES && !fill(c, STORE_REQUEST_BYTES)) return;
    StoreRequest request;
    if (!store_read_request(c->in.data, &request)) {
        c->hang_up = true;
        reply_status(c, request.id, STORE_BAD_REQUEST);
        return;
    }
    size_t body = (size_t)request.key_bytes + request.value_bytes + request.expected_bytes;
    if (!fill(c, STORE_REQUEST_BYTES + body)) return;
    execute(server, c, &request);
    buffer_reset(&c->in);
}

static void handle(StoreServer *server, Connection *c, short events) {
    if (c->out.used > 0) send_pending(c);
    if (c->finished || c->out.used > 0) return;
    if (!(events & (POLLIN | POLLHUP | POLLERR | POLLNVAL))) return;
    if (c->greeted) {
        read_request(server, c);
    } else {
        read_greeting(server, c);
    }
}

// ---- The round

static void accept_one(StoreServer *server, int fd) {
    if (server->count == server->capacity) {
        server->capacity = server->capacity ? 2 * server->capacity : 64;
        server->connections =
            memory_grow(server->connections, server->capacity, sizeof *server->connections);
        server->polls = memory_grow(server->polls, server->capacity + 2, sizeof *server->polls);
    }
    server->connections[server->count++] =
        (Connection){.fd = fd, .greet_by_ns = clock_ns() + (uint64_t)GREETING_MS * 1000000};
}

static void accept_some(StoreServer *server) {
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        int fd = net_accept(server->listener);
        if (fd < 0) {
            // Out of descriptors or memory, the listener stays readable: without a pause this
            // would be a busy loop. Anything else concerns that one connection.
            bool exhausted =
                errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
            if (exhausted) server->accept_again_ns = clock_ns() + (uint64_t)PAUSE_MS * 1000000;
            return;
        }
        if (server->count >= server->client_limit + STRANGERS_MAX) {
            close(fd);
        } else {
            accept_one(server, fd);
        }
    }
}

static void connection_close(StoreServer *server, Connection *c) {
    if (c->greeted) server->clients--;
    close(c->fd);
    free(c->in.data);
    free(c->out.data);
}

static void remove_finished(StoreServer *server) {
    uint64_t now = clock_ns();
    for (size_t i = server->count; i-- > 0;) {
        Connection *c = &server->connections[i];
        bool too_slow = !c->greeted && now >= c->greet_by_ns;
        if (!c->finished && !too_slow) continue;
        connection_close(server, c);
        *c = server->connections[--server->count];
    }
}

// Returns poll's timeout in ms: -1 unless something must happen without a message.
static int prepare_poll(StoreServer *server) {
    bool accepting = clock_ns() >= server->accept_again_ns;
    int timeout_ms = accepting ? -1 : PAUSE_MS;
    server->polls[0] = (struct pollfd){.fd = server->stop_fd, .events = POLLIN};
    server->polls[1] = (struct pollfd){.fd = accepting ? server->listener : -1, .events = POLLIN};
    for (size_t i = 0; i < server->count; i++) {
        const Connection *c = &server->connections[i];
        short events = c->out.used > 0 ? POLLOUT : POLLIN;
        server->polls[2 + i] = (struct pollfd){.fd = c->fd, .events = events};
        if (!c->greeted && timeout_ms < 0) timeout_ms = 1000;
    }
    return timeout_ms;
}

static void *serve(void *argument) {
    StoreServer *server = argument;
    for (;;) {
        int timeout_ms = prepare_poll(server);
        int ready = poll(server->polls, (nfds_t)(server->count + 2), timeout_ms);
        if (ready < 0) continue; // EINTR or no memory for a moment
        if (server->polls[0].revents) return NULL;
        for (size_t i = 0; i < server->count; i++) {
            Connection *c = &server->connections[i];
            if (server->polls[2 + i].revents) handle(server, c, server->polls[2 + i].revents);
        }
        remove_finished(server);
        if (server->polls[1].revents) accept_some(server);
    }
}

// ---- Opening and closing

// Thousands of ranks need thousands of descriptors: the soft limit goes up to the hard one.
static size_t raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
    }
    return limit.rlim_cur > 1u << 20 ? 1u << 20 : (size_t)limit.rlim_cur;
}

// The server's thread takes no signals: they are for the thread that supervises.
static int start_thread(StoreServer *server) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static void server_free(StoreServer *server) {
    if (server->listener >= 0) close(server->listener);
    if (server->stop_fd >= 0) close(server->stop_fd);
    for (size_t i = 0; i < server->count; i++) connection_close(server, &server->connections[i]);
    free(server->connections);
    free(server->polls);
    store_table_close(server->table);
    free(server);
}

StoreServer *store_serve(const char *host, int port, const char *token, Error *err) {
    if (strlen(token) > STORE_TOKEN_MAX) {
        error_set(err, STATUS_USAGE, "the job's token is longer than %d bytes", STORE_TOKEN_MAX);
        return NULL;
    }
    StoreServer *server = memory_zalloc(sizeof *server);
    server->stop_fd = -1;
    server->listener = net_listen(host, port, err);
    if (server->listener < 0) {
        server_free(server);
        return NULL;
    }
    server->port = net_port(server->listener);
    server->table = store_table_open();
    server->polls = memory_grow(NULL, 2, sizeof *server->polls);
    store_write_greeting(server->greeting, token);
    size_t room = raise_descriptor_limit();
    room = room > 2 * DESCRIPTORS_KEPT ? room - DESCRIPTORS_KEPT - STRANGERS_MAX : room / 2;
    server->client_limit = room < CLIENTS_MAX ? room : CLIENTS_MAX;

    server->stop_fd = eventfd(0, EFD_CLOEXEC);
    int code = server->stop_fd < 0 ? errno : start_thread(server);
    if (code == 0) return server;
    error_set(err, STATUS_FAILED, "cannot start the store's thread: %s", strerror(code));
    server_free(server);
    return NULL;
}

int store_server_port(const StoreServer *server) {
    return server->port;
}

void store_server_close(StoreServer *server) {
    if (!server) return;
    uint64_t one = 1;
    ssize_t n = write(server->stop_fd, &one, sizeof one);
    CHECK(n == sizeof one, "the store's stop message: %zd bytes", n);
    pthread_join(server->thread, NULL);
    server_free(server);
}
