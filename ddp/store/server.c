/* server.c: the store's server (store.h): one thread, one epoll.
 *
 * The thread owns all data here; its only input besides sockets is "stop", through an eventfd. No
 * call on a client's socket blocks, and silent clients cost a round nothing. For each connection
 * there is at most one message being read, one request that waits for its key ("parked") and one
 * unsent reply; while a reply is unsent nothing is read from that client, so a client that never
 * reads costs one buffer. A client that violates the protocol, or does not authenticate within
 * GREETING_MS, is disconnected.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/store/net.h"
#include "ddp/store/protocol.h"
#include "ddp/store/store.h"
#include "ddp/store/table.h"

enum {
    CLIENTS_MAX = 8192,
    STRANGERS_MAX = 64,    // connections beyond the limit, which get STORE_NO_ROOM
    DESCRIPTORS_KEPT = 64, // for the rest of the process
    EVENTS_PER_ROUND = 256,
    ACCEPTS_PER_ROUND = 64,
    GREETING_MS = 5000,
    EXPIRE_MS = 1000, // interval of the check for handshakes that timed out
    PAUSE_MS = 100,   // back-off after running out of descriptors
};

typedef struct Buffer {
    uint8_t *data;
    size_t used, capacity;
} Buffer;

typedef enum StoreStage {
    STAGE_HELLO,  // receiving its nonce
    STAGE_PROOF,  // receiving its proof
    STAGE_CLIENT, // authenticated: receiving requests
} StoreStage;

typedef struct Connection {
    LIST_ENTRY(Connection) all;    // in strangers or clients
    LIST_ENTRY(Connection) parked; // in parked if is_parked
    LIST_ENTRY(Connection) ended;  // in ended if has_ended
    int fd;
    uint32_t events; // registered with epoll
    StoreStage stage;
    bool hang_up;         // close after the reply is sent
    bool has_ended;       // removed at the end of this round
    uint64_t greet_by_ns; // deadline of the handshake
    StoreNonces nonces;
    Buffer in; // a message of the handshake, or one request
    Buffer out;
    size_t out_sent;
    bool is_parked; // a request waits for parked_key
    StoreRequest parked_request;
    uint8_t parked_key[STORE_KEY_MAX];
} Connection;

typedef LIST_HEAD(ConnectionList, Connection) ConnectionList;

struct StoreServer {
    pthread_t thread;
    int listener, stop_fd, epoll_fd, port;
    char token[STORE_TOKEN_MAX + 1];
    bool refusal_said; // a wrong token is reported once
    StoreTable *table;
    ConnectionList strangers, clients; // before and after the handshake
    ConnectionList parked, ended;      // subsets of these
    size_t connection_count, client_count, client_limit;
    bool accepting;           // the listener is registered with epoll
    uint64_t accept_again_ns; // otherwise: when it will be
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

// Empties a buffer; frees the memory of a large one.
static void buffer_reset(Buffer *buffer) {
    buffer->used = 0;
    if (buffer->capacity <= 4096) return;
    free(buffer->data);
    *buffer = (Buffer){0};
}

// Marks a connection for removal at the end of the round: pending events may point to it.
static void end_connection(StoreServer *server, Connection *c) {
    if (c->has_ended) return;
    c->has_ended = true;
    LIST_INSERT_HEAD(&server->ended, c, ended);
}

static void watch_socket(StoreServer *server, Connection *c, uint32_t events) {
    if (c->events == events) return;
    struct epoll_event wanted = {.events = events, .data.ptr = c};
    int operation = c->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    c->events = events;
    if (epoll_ctl(server->epoll_fd, operation, c->fd, &wanted) != 0) end_connection(server, c);
}

static void send_pending(StoreServer *server, Connection *c) {
    NetResult result = net_move(c->fd, NET_SEND, c->out.data, c->out.used, &c->out_sent, 0);
    if (result == NET_TIMEOUT) {
        watch_socket(server, c, EPOLLOUT);
        return;
    }
    c->out_sent = 0;
    buffer_reset(&c->out);
    watch_socket(server, c, EPOLLIN);
    if (result != NET_DONE || c->hang_up) end_connection(server, c);
}

static void send_reply(StoreServer *server, Connection *c, uint32_t id, StoreStatus status,
                       StoreBytes value) {
    uint8_t header[STORE_REPLY_BYTES];
    store_put_u32(header, id);
    store_put_u32(header + 4, (uint32_t)status);
    store_put_u32(header + 8, (uint32_t)value.bytes);
    buffer_append(&c->out, header, sizeof header);
    buffer_append(&c->out, value.data, value.bytes);
    send_pending(server, c);
}

static void send_status(StoreServer *server, Connection *c, uint32_t id, StoreStatus status) {
    send_reply(server, c, id, status, (StoreBytes){0});
}

// ---- Requests

static bool same_bytes(StoreBytes a, StoreBytes b) {
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

// Replies to a get or a wait if the key exists.
static bool answer_if_present(StoreServer *server, Connection *c, const StoreRequest *request,
                              StoreBytes key) {
    StoreBytes value = {0};
    if (!store_table_get(server->table, key, &value)) return false;
    if (request->op == STORE_OP_WAIT) value.bytes = 0;
    send_reply(server, c, request->id, STORE_DONE, value);
    return true;
}

static void unpark_request(Connection *c) {
    if (c->is_parked) LIST_REMOVE(c, parked);
    c->is_parked = false;
}

static void wake_parked(StoreServer *server, StoreBytes key) {
    for (Connection *c = LIST_FIRST(&server->parked), *next; c; c = next) {
        next = LIST_NEXT(c, parked);
        StoreBytes wanted = {c->parked_key, c->parked_request.key_bytes};
        if (!same_bytes(wanted, key)) continue;
        unpark_request(c);
        (void)answer_if_present(server, c, &c->parked_request, key);
    }
}

// Only a new key wakes parked requests: they are parked because theirs is missing.
static StoreStatus set_and_wake(StoreServer *server, StoreBytes key, StoreBytes value) {
    StoreBytes old;
    bool is_new = !store_table_get(server->table, key, &old);
    if (!store_table_set(server->table, key, value)) return STORE_FULL;
    if (is_new) wake_parked(server, key);
    return STORE_DONE;
}

// An integer is stored as decimal text, so that a get of a counter is readable.
static StoreStatus add_to_key(StoreServer *server, StoreBytes key, int64_t amount, int64_t *sum) {
    StoreBytes old = {0};
    char text[32] = "0";
    if (store_table_get(server->table, key, &old)) {
        if (old.bytes == 0 || old.bytes >= sizeof text) return STORE_NOT_INTEGER;
        memcpy(text, old.data, old.bytes); // zeros follow
    }
    char *end = text;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') return STORE_NOT_INTEGER;
    if (__builtin_add_overflow((int64_t)value, amount, sum)) return STORE_NOT_INTEGER;
    int bytes = snprintf(text, sizeof text, "%lld", (long long)*sum);
    return set_and_wake(server, key, (StoreBytes){(uint8_t *)text, (size_t)bytes});
}

static void answer_compare_set(StoreServer *server, Connection *c, const StoreRequest *request,
                               StoreBytes key, StoreBytes desired, StoreBytes expected) {
    StoreBytes now = {0};
    (void)store_table_get(server->table, key, &now); // a missing key equals ""
    if (!same_bytes(now, expected)) {
        send_reply(server, c, request->id, STORE_DONE, now);
        return;
    }
    StoreStatus status = set_and_wake(server, key, desired);
    send_reply(server, c, request->id, status, desired);
}

static void execute_request(StoreServer *server, Connection *c, const StoreRequest *request) {
    StoreBytes key = {c->in.data + STORE_REQUEST_BYTES, request->key_bytes};
    StoreBytes value = {key.data + key.bytes, request->value_bytes};
    StoreBytes expected = {value.data + value.bytes, request->expected_bytes};
    StoreStatus status;
    int64_t sum = 0;
    uint8_t sum_bytes[8];
    unpark_request(c); // the client timed out on its previous request
    switch ((StoreOp)request->op) {
    case STORE_OP_SET:
        send_status(server, c, request->id, set_and_wake(server, key, value));
        break;
    case STORE_OP_GET:
    case STORE_OP_WAIT:
        if (answer_if_present(server, c, request, key)) break;
        if (request->no_wait) {
            send_status(server, c, request->id, STORE_MISSING);
            break;
        }
        c->is_parked = true;
        c->parked_request = *request;
        memcpy(c->parked_key, key.data, key.bytes);
        LIST_INSERT_HEAD(&server->parked, c, parked);
        break;
    case STORE_OP_ADD:
        status = add_to_key(server, key, store_read_i64(value.data), &sum);
        store_put_i64(sum_bytes, sum);
        send_reply(server, c, request->id, status, (StoreBytes){sum_bytes, sizeof sum_bytes});
        break;
    case STORE_OP_COMPARE_SET:
        answer_compare_set(server, c, request, key, value, expected);
        break;
    }
}

// ---- Reading

// Reads until `in` holds `bytes`. False: incomplete, or the client has disconnected.
static bool read_until(StoreServer *server, Connection *c, size_t bytes) {
    buffer_reserve(&c->in, bytes);
    NetResult result = net_move(c->fd, NET_RECEIVE, c->in.data, bytes, &c->in.used, 0);
    if (result == NET_CLOSED || result == NET_FAILED) end_connection(server, c);
    return result == NET_DONE;
}

static void read_hello(StoreServer *server, Connection *c) {
    bool whole = read_until(server, c, STORE_HELLO_BYTES);
    size_t magic = c->in.used < STORE_MAGIC_BYTES ? c->in.used : STORE_MAGIC_BYTES;
    if (memcmp(c->in.data, STORE_MAGIC, magic) != 0) {
        end_connection(server, c); // another protocol: no reply
        return;
    }
    if (!whole) return;
    (void)store_read_hello(c->in.data, c->nonces.client); // its magic was compared above
    buffer_reset(&c->in);
    if (store_nonce_make(c->nonces.server, NULL) != 0) {
        end_connection(server, c);
        return;
    }
    c->stage = STAGE_PROOF;
    buffer_reserve(&c->out, STORE_HELLO_BYTES);
    store_write_hello(c->out.data, c->nonces.server);
    c->out.used = STORE_HELLO_BYTES;
    send_pending(server, c);
}

// Reports a refused client, once: retries must not fill the log.
static void say_refusal(StoreServer *server, const Connection *c) {
    if (server->refusal_said) return;
    server->refusal_said = true;
    char peer[NET_NAME_MAX];
    net_peer_name(c->fd, peer);
    dprintf(STDERR_FILENO,
            "store: refused a client at %s: its token is not this job's (DDPRUN_TOKEN must be "
            "the same on every node)\n",
            peer);
}

static void read_proof(StoreServer *server, Connection *c) {
    if (!read_until(server, c, STORE_PROOF_BYTES)) return;
    StoreStatus status = server->client_count < server->client_limit ? STORE_DONE : STORE_NO_ROOM;
    if (!store_proof_holds(c->in.data, server->token, STORE_SIDE_CLIENT, &c->nonces)) {
        say_refusal(server, c);
        status = STORE_WRONG_TOKEN;
    }
    buffer_reset(&c->in);
    uint8_t answer[STORE_ANSWER_BYTES] = {0};
    memcpy(answer, STORE_MAGIC, STORE_MAGIC_BYTES);
    store_put_u32(answer + STORE_MAGIC_BYTES, (uint32_t)status);
    if (status == STORE_DONE) {
        c->stage = STAGE_CLIENT;
        LIST_REMOVE(c, all);
        LIST_INSERT_HEAD(&server->clients, c, all);
        server->client_count++;
        store_proof_make(answer + STORE_MAGIC_BYTES + 4, server->token, STORE_SIDE_SERVER,
                         &c->nonces);
    }
    c->hang_up = status != STORE_DONE;
    buffer_append(&c->out, answer, sizeof answer);
    send_pending(server, c);
}

static void read_request(StoreServer *server, Connection *c) {
    if (c->in.used < STORE_REQUEST_BYTES && !read_until(server, c, STORE_REQUEST_BYTES)) return;
    StoreRequest request;
    if (!store_read_request(c->in.data, &request)) {
        c->hang_up = true;
        send_status(server, c, request.id, STORE_BAD_REQUEST);
        return;
    }
    size_t body = (size_t)request.key_bytes + request.value_bytes + request.expected_bytes;
    if (!read_until(server, c, STORE_REQUEST_BYTES + body)) return;
    execute_request(server, c, &request);
    buffer_reset(&c->in);
}

static void handle_connection(StoreServer *server, Connection *c) {
    if (!c->has_ended && c->out.used > 0) send_pending(server, c);
    if (c->has_ended || c->out.used > 0) return;
    if (c->stage == STAGE_HELLO)
        read_hello(server, c);
    else if (c->stage == STAGE_PROOF)
        read_proof(server, c);
    else
        read_request(server, c);
}

// ---- The round

static void set_accepting(StoreServer *server, bool accepting) {
    struct epoll_event wanted = {.events = accepting ? EPOLLIN : 0, .data.ptr = &server->listener};
    server->accepting = accepting;
    (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listener, &wanted);
}

static void accept_some(StoreServer *server) {
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        int fd = net_accept(server->listener);
        if (fd < 0) {
            // Out of descriptors or memory the listener stays readable: back off, or this would be
            // a busy loop. Other errors concern one connection.
            if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
            server->accept_again_ns = clock_ns() + (uint64_t)PAUSE_MS * 1000000;
            set_accepting(server, false);
            return;
        }
        if (server->connection_count >= server->client_limit + STRANGERS_MAX) {
            close(fd);
            continue;
        }
        Connection *c = memory_zalloc(sizeof *c);
        c->fd = fd;
        c->greet_by_ns = clock_ns() + (uint64_t)GREETING_MS * 1000000;
        LIST_INSERT_HEAD(&server->strangers, c, all);
        server->connection_count++;
        watch_socket(server, c, EPOLLIN);
    }
}

static void connection_close(StoreServer *server, Connection *c) {
    if (c->stage == STAGE_CLIENT) server->client_count--;
    server->connection_count--;
    unpark_request(c);
    LIST_REMOVE(c, all);
    // Removed from epoll explicitly: a process forked meanwhile may hold the descriptor, and close
    // alone would leave it registered.
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

static void end_slow_strangers(StoreServer *server) {
    uint64_t now = clock_ns();
    Connection *c;
    LIST_FOREACH(c, &server->strangers, all) {
        // cppcheck-suppress uninitvar; it does not see that the list holds connections
        if (now >= c->greet_by_ns) end_connection(server, c);
    }
}

// Handles epoll's events. False: stop.
static bool handle_events(StoreServer *server, const struct epoll_event *events, int count) {
    bool accept_more = false;
    for (int i = 0; i < count; i++) {
        void *what = events[i].data.ptr;
        if (what == &server->stop_fd) return false;
        if (what == &server->listener)
            accept_more = true;
        else
            handle_connection(server, what);
    }
    if (accept_more) accept_some(server);
    return true;
}

static void *serve_clients(void *argument) {
    StoreServer *server = argument;
    struct epoll_event events[EVENTS_PER_ROUND];
    uint64_t expire_ns = 0;
    for (;;) {
        int timeout_ms = !LIST_EMPTY(&server->strangers) ? EXPIRE_MS : -1;
        if (!server->accepting) timeout_ms = PAUSE_MS;
        int count = epoll_wait(server->epoll_fd, events, EVENTS_PER_ROUND, timeout_ms);
        if (!handle_events(server, events, count)) return NULL;
        uint64_t now = clock_ns();
        if (!LIST_EMPTY(&server->strangers) && now >= expire_ns) {
            end_slow_strangers(server);
            expire_ns = now + (uint64_t)EXPIRE_MS * 1000000;
        }
        if (!server->accepting && now >= server->accept_again_ns) set_accepting(server, true);
        while (!LIST_EMPTY(&server->ended)) {
            Connection *c = LIST_FIRST(&server->ended);
            LIST_REMOVE(c, ended);
            connection_close(server, c);
        }
    }
}

// ---- Opening and closing

// Raises the soft limit of descriptors to the hard one: each rank needs one.
static rlim_t raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
    }
    return limit.rlim_cur;
}

static void server_free(StoreServer *server) {
    int fds[] = {server->listener, server->stop_fd, server->epoll_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0) close(fds[i]);
    ConnectionList *lists[] = {&server->strangers, &server->clients};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        // Each call removes the list's first entry: NOLINTNEXTLINE(clang-analyzer-unix.Malloc)
        while (!LIST_EMPTY(lists[i])) connection_close(server, LIST_FIRST(lists[i]));
    }
    store_table_close(server->table);
    free(server);
}

// A field's address identifies its descriptor in epoll's events.
static int watch_own(StoreServer *server, int *fd) {
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = fd};
    return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, *fd, &wanted);
}

static int start_serving(StoreServer *server, Error *err) {
    server->stop_fd = eventfd(0, EFD_CLOEXEC);
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->accepting = true;
    int code = 0;
    if (server->stop_fd < 0 || server->epoll_fd < 0 || watch_own(server, &server->stop_fd) != 0 ||
        watch_own(server, &server->listener) != 0)
        code = errno;
    if (code == 0) {
        // The server's thread blocks all signals: the supervising thread handles them.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        code = pthread_create(&server->thread, NULL, serve_clients, server);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (code == 0) return 0;
    return error_set(err, STATUS_FAILED, "cannot start the store: %s", strerror(code));
}

StoreServer *store_serve(const char *host, int port, const char *token, Error *err) {
    if (net_check_port(port, 0, err) != 0) return NULL;
    if (strlen(token) > STORE_TOKEN_MAX)
        return error_null(err, STATUS_USAGE, "the job's token is longer than %d bytes",
                          STORE_TOKEN_MAX);
    StoreServer *server = memory_zalloc(sizeof *server);
    server->stop_fd = server->epoll_fd = -1;
    server->table = store_table_open();
    strcpy(server->token, token);
    rlim_t room = raise_descriptor_limit();
    room = room > 4UL * DESCRIPTORS_KEPT ? room - DESCRIPTORS_KEPT - STRANGERS_MAX : room / 2;
    server->client_limit = (size_t)(room < CLIENTS_MAX ? room : CLIENTS_MAX);
    server->listener = net_listen(host, port, err);
    if (server->listener >= 0) {
        server->port = net_port(server->listener);
        if (start_serving(server, err) == 0) return server;
    }
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
