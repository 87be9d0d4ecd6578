/* test_store_calls.c: the store when system calls fail, one at a time; how it waits; and the events
 * that it requests from epoll.
 */
#include "tests/rigs/files.h"
#include "tests/rigs/store_rig.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>

typedef enum Call {
    NONE,
    EVENTFD,
    EPOLL_CREATE,
    EPOLL_CTL,
    THREAD,
    GETRLIMIT,
    SETRLIMIT,
    ACCEPT,
    RANDOM,
    SOCKET,
    LISTEN,
    GETSOCKOPT,
    GETSOCKNAME,
    GETPEERNAME
} Call;

static _Atomic int failing, fine_before, fails_with, times; // call, first failing one, errno
static _Atomic int watched_out, watched_in, listener_offs;  // changes requested of epoll_ctl
static _Atomic uint64_t failed_ns, accepted_ns;             // times: last failed accept, the next
static struct rlimit limit_said; // result of getrlimit; rlim_max 0: the real one

static bool fails(Call call) {
    if (failing != (int)call || fine_before-- > 0 || times-- <= 0) return false;
    errno = fails_with;
    return true;
}

static void let_fail(Call call, int before, int error) {
    fails_with = error;
    fine_before = before;
    times = 1;
    failing = (int)call;
}

#define REAL(type, name, ...) type __real_##name(__VA_ARGS__), __wrap_##name(__VA_ARGS__)

REAL(int, eventfd, unsigned count, int flags);
REAL(int, epoll_create1, int flags);
REAL(int, epoll_ctl, int epoll, int operation, int fd, struct epoll_event *event);
REAL(int, pthread_create, pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
     void *);
REAL(int, getrlimit, __rlimit_resource_t resource, struct rlimit *limit);
REAL(int, setrlimit, __rlimit_resource_t resource, const struct rlimit *limit);
REAL(int, accept4, int fd, struct sockaddr *address, socklen_t *bytes, int flags);
REAL(ssize_t, getrandom, void *data, size_t bytes, unsigned flags);
REAL(int, socket, int family, int type, int protocol);
REAL(int, listen, int fd, int backlog);
REAL(int, getsockopt, int fd, int level, int name, void *value, socklen_t *bytes);
REAL(int, getsockname, int fd, struct sockaddr *address, socklen_t *bytes);
REAL(int, getpeername, int fd, struct sockaddr *address, socklen_t *bytes);

int __wrap_eventfd(unsigned count, int flags) {
    return fails(EVENTFD) ? -1 : __real_eventfd(count, flags);
}

int __wrap_epoll_create1(int flags) {
    return fails(EPOLL_CREATE) ? -1 : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    if (operation == EPOLL_CTL_ADD && fails(EPOLL_CTL)) return -1;
    if (operation == EPOLL_CTL_MOD) {
        watched_out += event->events == EPOLLOUT;
        watched_in += event->events == EPOLLIN;
        listener_offs += event->events == 0;
    }
    return __real_epoll_ctl(epoll, operation, fd, event);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *argument) {
    return fails(THREAD) ? fails_with : __real_pthread_create(thread, how, run, argument);
}

int __wrap_getrlimit(__rlimit_resource_t resource, struct rlimit *limit) {
    if (fails(GETRLIMIT)) return -1;
    if (limit_said.rlim_max) *limit = limit_said;
    return limit_said.rlim_max ? 0 : __real_getrlimit(resource, limit);
}

int __wrap_setrlimit(__rlimit_resource_t resource, const struct rlimit *limit) {
    if (limit_said.rlim_max) assert_int_equal(limit->rlim_cur, limit_said.rlim_max);
    if (fails(SETRLIMIT)) return -1;
    return limit_said.rlim_max ? 0 : __real_setrlimit(resource, limit);
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags) {
    if (!fails(ACCEPT)) {
        const int accepted = __real_accept4(fd, address, bytes, flags);
        if (accepted >= 0 && accepted_ns == 0) accepted_ns = clock_ns();
        return accepted;
    }
    failed_ns = clock_ns();
    accepted_ns = 0;
    errno = fails_with;
    return -1;
}

ssize_t __wrap_getrandom(void *data, size_t bytes, unsigned flags) {
    return fails(RANDOM) ? -1 : __real_getrandom(data, bytes, flags);
}

int __wrap_socket(int family, int type, int protocol) {
    return fails(SOCKET) ? -1 : __real_socket(family, type, protocol);
}

int __wrap_listen(int fd, int backlog) {
    return fails(LISTEN) ? -1 : __real_listen(fd, backlog);
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes) {
    return fails(GETSOCKOPT) ? -1 : __real_getsockopt(fd, level, name, value, bytes);
}

int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *bytes) {
    return fails(GETSOCKNAME) ? -1 : __real_getsockname(fd, address, bytes);
}

// State of a client's thread: its clock advances only by its sleeps.
static _Thread_local struct {
    uint64_t now_ns; // 0: the real clock
    int slept_ms[16], sleeps;
    bool closes_once; // asserts that each closed descriptor is open
    bool moves;       // the next net_move returns `result` with `error`
    NetResult result;
    int error;
    size_t spoiled; // byte of the next reply's header that is replaced by `with`; 0: none
    uint8_t with;
} client;

REAL(uint64_t, clock_ns, void);
REAL(uint64_t, clock_ns_after, double seconds);
REAL(int, close, int fd);
REAL(int, nanosleep, const struct timespec *time, struct timespec *left);
REAL(NetResult, net_move, int fd, NetDirection to, void *data, size_t bytes, size_t *moved,
     uint64_t);

uint64_t __wrap_clock_ns(void) {
    return client.now_ns ? client.now_ns : __real_clock_ns();
}

uint64_t __wrap_clock_ns_after(double seconds) {
    return client.now_ns ? client.now_ns + (uint64_t)(seconds * 1e9 + 0.5)
                         : __real_clock_ns_after(seconds);
}

int __wrap_close(int fd) {
    const int status = __real_close(fd);
    if (client.closes_once) assert_int_equal(status, 0);
    return status;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left) {
    if (!client.now_ns) return __real_nanosleep(time, left);
    assert_in_range(client.sleeps, 0, 15);
    assert_int_equal(time->tv_nsec % 1000000, 0);
    client.slept_ms[client.sleeps++] = (int)(time->tv_nsec / 1000000);
    client.now_ns += (uint64_t)time->tv_nsec;
    return 0;
}

NetResult __wrap_net_move(int fd, NetDirection to, void *data, size_t bytes, size_t *moved,
                          uint64_t deadline_ns) {
    if (client.moves) {
        client.moves = false;
        errno = client.error;
        return client.result;
    }
    const NetResult result = __real_net_move(fd, to, data, bytes, moved, deadline_ns);
    if (client.spoiled && to == NET_RECEIVE && bytes == STORE_REPLY_BYTES) {
        ((uint8_t *)data)[client.spoiled] = client.with;
        client.spoiled = 0;
    }
    return result;
}

int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *bytes) {
    return fails(GETPEERNAME) ? -1 : __real_getpeername(fd, address, bytes);
}

// Waits until at most `before` descriptors are open. The server's thread closes a connection only
// after it notices that the client has closed it, perhaps one counted in `before`.
static void close_until(int before) {
    for (int i = 0; i < 2000 && count_descriptors() > before; i++) usleep(1000);
    assert_in_range(count_descriptors(), 0, before);
}

// A server that fails to start returns an error and leaks nothing.
static void test_server_cannot_start(void **state) {
    (void)state;
    static const struct {
        Call call;
        int before;
        const char *says;
    } cases[] = {
        {EVENTFD, 0, "cannot start the store: "},     {EPOLL_CREATE, 0, "cannot start the "},
        {EPOLL_CTL, 0, "cannot start the store: "},   {EPOLL_CTL, 1, "cannot start the "},
        {THREAD, 0, "cannot start the store: "},      {SOCKET, 0, "cannot listen on 127.0.0"},
        {LISTEN, 0, "cannot listen on 127.0.0.1:0: "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        const int before = count_descriptors();
        let_fail(cases[i].call, cases[i].before, EMFILE);
        assert_null(store_serve(HOST, 0, TOKEN, &err));
        failing = NONE;
        assert_int_equal(count_descriptors(), before);
        assert_int_equal(err.status, STATUS_FAILED);
        check_message(&err, cases[i].says);
        check_message(&err, strerror(EMFILE));
    }
}

// Returns how many clients a server with these limits accepts.
static int count_clients(void) {
    enum { TRIED = 200 };
    int fds[TRIED], count = 0;
    Error err = {0};
    StoreServer *server = store_serve(HOST, 0, TOKEN, &err);
    CHECK_OK(server, err);
    for (int i = 0; i < TRIED; i++) {
        fds[i] = raw_connect(store_server_port(server));
        count += raw_shake_hands(fds[i], TOKEN, false) == STORE_DONE;
    }
    for (int i = 0; i < TRIED; i++) close(fds[i]);
    store_server_close(server);
    return count;
}

static void test_limits_of_descriptors(void **state) {
    (void)state;
    limit_said = (struct rlimit){100, 320};
    assert_int_equal(count_clients(), 320 - 128);
    let_fail(SETRLIMIT, 0, EPERM);
    assert_int_equal(count_clients(), 50);
    limit_said = (struct rlimit){250, 250};
    assert_int_equal(count_clients(), 125); // half of 250, not 250 - 128
    limit_said = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    assert_int_equal(count_clients(), 200); // all clients that tried
    limit_said = (struct rlimit){0, 0};
    let_fail(GETRLIMIT, 0, EINVAL);
    assert_int_equal(count_clients(), 128);
    failing = NONE;
}

// Up to 64 connections beyond the limit of clients get STORE_NO_ROOM; further ones are closed
// without a reply until one of the 64 has been closed.
static void test_limit_of_strangers(void **state) {
    (void)state;
    enum { CLIENTS = 5, MOST = CLIENTS + 64 };
    int fds[MOST];
    uint8_t byte;
    Error err = {0};
    limit_said = (struct rlimit){2 * CLIENTS, 2 * CLIENTS};
    StoreServer *server = store_serve(HOST, 0, TOKEN, &err);
    limit_said = (struct rlimit){0, 0};
    CHECK_OK(server, err);
    const int port = store_server_port(server);
    for (int i = 0; i < MOST; i++) fds[i] = raw_connect(port);
    for (int i = 0; i < 2; i++) {
        const int fd = raw_connect(port);
        assert_int_equal(raw_receive(fd, &byte, 1), NET_CLOSED);
        close(fd);
    }
    for (int i = 0; i < MOST; i++)
        assert_int_equal(raw_shake_hands(fds[i], TOKEN, false),
                         i < CLIENTS ? STORE_DONE : STORE_NO_ROOM);
    assert_int_equal(raw_receive(fds[CLIENTS], &byte, 1), NET_CLOSED);
    close(fds[CLIENTS]);
    fds[CLIENTS] = raw_connect(port);
    assert_int_equal(raw_shake_hands(fds[CLIENTS], TOKEN, false), STORE_NO_ROOM);
    for (int i = 0; i < MOST; i++) close(fds[i]);
    store_server_close(server);
}

// Without descriptors or memory the server stops accepting for 0.1 s; other errors affect one
// client only.
static void test_accepting_pauses(void **state) {
    const Served *served = *state;
    static const int errors[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM, ECONNABORTED};
    for (int i = 0; i < 5; i++) {
        failed_ns = accepted_ns = 0;
        listener_offs = 0;
        let_fail(ACCEPT, 0, errors[i]);
        const int fd = raw_connect(served->port);
        assert_int_equal(raw_shake_hands(fd, TOKEN, false), STORE_DONE);
        assert_int_equal(listener_offs, i < 4);
        assert_true(failed_ns > 0 && accepted_ns > failed_ns);
        if (i < 4) assert_true(accepted_ns - failed_ns >= 100000000);
        close(fd);
    }
    failing = NONE;
    assert_alive(served);
}

// A connection that epoll cannot watch, or that gets no nonce, is closed; others are served.
static void test_connection_is_given_up(void **state) {
    const Served *served = *state;
    uint8_t hello[STORE_HELLO_BYTES] = STORE_MAGIC, byte;
    for (int i = 0; i < 2; i++) {
        let_fail(i == 0 ? EPOLL_CTL : RANDOM, 0, ENOSPC);
        const int fd = raw_connect(served->port);
        raw_send(fd, hello, sizeof hello);
        assert_int_equal(raw_receive(fd, &byte, 1), NET_CLOSED);
        failing = NONE;
        close(fd);
        assert_alive(served);
    }
}

static void test_client_cannot_connect(void **state) {
    const Served *served = *state;
    char token[STORE_TOKEN_MAX + 1];
    static const Call calls[] = {SOCKET, GETSOCKOPT, RANDOM};
    const int before = count_descriptors();
    for (int i = 0; i < 12; i++) {
        Error err = {0};
        let_fail(calls[i % 3], 0, ENOBUFS);
        times = 1000; // all attempts
        client.closes_once = true;
        assert_null(store_connect(HOST, served->port, TOKEN, 0.01, &err));
        client.closes_once = false;
        failing = NONE;
        assert_int_equal(err.status, STATUS_FAILED);
        check_message(&err, "no store within 0.01 s: ");
        check_message(&err, strerror(ENOBUFS));
    }
    close_until(before);
    Error err = {0};
    let_fail(RANDOM, 0, ENOSYS);
    assert_int_equal(store_make_token(token, &err), -1);
    check_message(&err, "no random numbers: ");
    check_message(&err, strerror(ENOSYS));
    for (Call call = GETSOCKNAME; call <= GETPEERNAME; call++) { // an unknown address is not
        let_fail(call, 0, ENOBUFS);                              // taken for a self-connection
        const int fd = net_connect(HOST, served->port, clock_ns() + 10000000000, &err);
        assert_int_equal(times, 0);
        assert_true(fd >= 0);
        close(fd);
    }
    failing = NONE;
}

// Pauses between attempts grow from 10 to 250 ms; the last ends before the deadline.
static void test_pauses_between_attempts(void **state) {
    (void)state;
    static const int pauses[] = {10, 20, 40, 80, 160, 250, 250};
    static const double times_s[] = {0.01, 0.010000005, 0.0101, 0.81, 0.811};
    static const int wanted[] = {0, 1, 1, 6, 7};
    Error err = {0};
    const int listener = net_listen(HOST, 0, &err), port = net_port(listener);
    close(listener);
    for (int i = 0; i < 5; i++) {
        err = (Error){0};
        client.now_ns = 1000000000;
        client.sleeps = 0;
        assert_null(store_connect(HOST, port, TOKEN, times_s[i], &err));
        client.now_ns = 0;
        assert_int_equal(client.sleeps, wanted[i]);
        assert_memory_equal(client.slept_ms, pauses, (size_t)wanted[i] * sizeof *pauses);
        check_message(&err, "cannot connect to " HOST);
        check_message(&err, strerror(ECONNREFUSED));
    }
    // A client that found no store leaks no memory.
    const struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < 20; i++) assert_null(store_connect(HOST, port, TOKEN, 1e-6, &err));
    const struct mallinfo2 after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd <
                before.uordblks + before.hblkhd + (size_t)2 * STORE_MESSAGE_MAX);
}

// After a partially sent request the connection is not used again.
static void test_request_is_not_sent(void **state) {
    const Served *served = *state;
    static const struct {
        NetResult result;
        int error;
        const char *says;
    } cases[] = {
        {NET_TIMEOUT, EAGAIN, "stopped in the middle of a message"},
        {NET_CLOSED, EPIPE, "closed the connection (has the process that serves it ended?)"},
        {NET_FAILED, EIO, "Input/output error"}};
    close(STDIN_FILENO); // the first client's descriptor is 0
    const int before = count_descriptors();
    for (int i = 0; i < 3; i++) {
        Error err = {0};
        char wanted[200];
        Store *store = new_client(served->port);
        store_set_prefix(store, "p");
        assert_true(store_is_connected(store));
        client.moves = true;
        client.result = cases[i].result;
        client.error = cases[i].error;
        assert_int_equal(store_set(store, "k", "v", 1, &err), -1);
        snprintf(wanted, sizeof wanted, "the store at %s:%d: %s", HOST, served->port,
                 cases[i].says);
        assert_string_equal(err.message, wanted);
        assert_false(store_is_connected(store));
        Store *clone = store_clone(store, LONG_S, &err); // opens a second connection
        assert_int_equal(store_set(clone, "k", "v", 1, &err), 0);
        assert_holds(served->store, "p/k", "v");
        store_close(clone);
        store_close(store);
    }
    close_until(before);
    assert_alive(served);
}

// Invalid replies, which no server of this version sends.
static void test_replies_of_another_kind(void **state) {
    const Served *served = *state;
    for (int i = 0; i < 2; i++) {
        Error err = {0};
        int64_t sum = 3;
        Store *store = new_client(served->port);
        client.spoiled = i == 0 ? 4 : 8; // the status, or the value's size
        client.with = 7;
        assert_int_equal(store_add(store, "n", 1, &sum, &err), -1);
        check_message(&err, "key 'n': the store at 127.0.0.1:");
        check_message(&err, " does not understand the request");
        assert_int_equal(sum, 3);
        store_close(store);
    }
}

// A reply that exceeds the socket's buffer is sent when the client reads, although no further
// request arrives; until then the server watches for writability.
static void test_reply_waits_for_its_reader(void **state) {
    const Served *served = *state;
    enum { MOST = 2000 };
    Error err = {0};
    int fd = raw_connect(served->port), asked = 0;
    uint8_t message[STORE_REQUEST_BYTES + 1], *value = calloc(1, STORE_VALUE_MAX);
    assert_int_equal(raw_shake_hands(fd, TOKEN, false), STORE_DONE);
    assert_int_equal(store_set(served->store, "k", value, STORE_VALUE_MAX, &err), 0);
    assert_int_equal(store_set(served->store, "alive", "yes", 3, &err), 0);
    watched_out = watched_in = 0;
    while (watched_out == watched_in && asked < MOST) {
        StoreRequest get = {.id = (uint32_t)asked++, .op = STORE_OP_GET, .key_bytes = 1};
        store_write_request(message, &get);
        message[STORE_REQUEST_BYTES] = 'k';
        raw_send(fd, message, sizeof message);
        assert_holds(served->store, "alive", "yes"); // the server has processed the request
    }
    assert_in_range(watched_out, 1, MOST); // several times if parts fit meanwhile
    for (int i = 0; i < asked; i++) {
        uint8_t reply[STORE_REPLY_BYTES];
        assert_int_equal(raw_receive(fd, reply, sizeof reply), NET_DONE);
        assert_int_equal(store_read_u32(reply), i);
        assert_int_equal(raw_receive(fd, value, STORE_VALUE_MAX), NET_DONE);
    }
    assert_alive(served);
    assert_int_equal(watched_in, watched_out);
    free(value);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_cannot_start),
        cmocka_unit_test(test_limits_of_descriptors),
        cmocka_unit_test(test_limit_of_strangers),
        SERVED(test_accepting_pauses),
        SERVED(test_connection_is_given_up),
        SERVED(test_client_cannot_connect),
        cmocka_unit_test(test_pauses_between_attempts),
        SERVED(test_request_is_not_sent),
        SERVED(test_replies_of_another_kind),
        SERVED(test_reply_waits_for_its_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
