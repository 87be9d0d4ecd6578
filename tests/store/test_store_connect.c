/* test_store_connect.c: connecting and disconnecting: arguments, addresses, ports in use, servers
 * that start late or end; socket options and transfers.
 */
#include "tests/rigs/store_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

// Both sides of each limit of the arguments of client and server.
static void test_arguments(void **state) {
    Served *served = *state;
    char token[STORE_TOKEN_MAX + 2];
    memset(token, 't', sizeof token);
    token[STORE_TOKEN_MAX + 1] = '\0';
    static const int bad_ports[] = {-1, 0, 65536};
    for (int i = 0; i < 3; i++) {
        Error err = {0};
        assert_null(store_connect(HOST, bad_ports[i], TOKEN, LONG_S, &err));
        assert_int_equal(err.status, STATUS_USAGE);
        check_message(&err, "expected 1 to 65535");
        if (bad_ports[i] == 0) continue; // valid for a server: the system chooses a port
        err = (Error){0};
        assert_null(store_serve(HOST, bad_ports[i], TOKEN, &err));
        check_message(&err, "expected 0 to 65535");
    }
    Error err = {0};
    assert_int_equal(net_check_port(1, 1, &err), 0);
    assert_int_equal(net_check_port(65535, 1, &err), 0);
    assert_null(store_connect(HOST, served->port, token, LONG_S, &err));
    check_message(&err, "the job's token is longer than 64 bytes");
    err = (Error){0};
    assert_null(store_serve(HOST, 0, token, &err));
    check_message(&err, "the job's token is longer than 64 bytes");
    token[STORE_TOKEN_MAX] = '\0';
    StoreServer *server = store_serve(HOST, 0, token, &err);
    Store *store = store_connect(HOST, store_server_port(server), token, LONG_S, &err);
    assert_non_null(store);
    store_close(store);
    store_server_close(server);
    assert_null(store_connect(HOST, served->port, TOKEN, 0, &err));
    assert_int_equal(err.status, STATUS_USAGE);
    assert_int_equal(net_check_host(HOST, &err), 0);
    err = (Error){0};
    assert_int_equal(net_check_host("no such host", &err), -1);
    check_message(&err, "address 'no such host' cannot be looked up");
    err = (Error){0};
    assert_int_equal(net_listen("192.0.2.1", 0, &err), -1); // reserved for documentation
    assert_int_equal(err.status, STATUS_USAGE);
    check_message(&err, strerror(EADDRNOTAVAIL));
    assert_int_equal(net_port(-1), -1);
}

// The server's thread blocks all signals; the caller's signal mask is unchanged.
static void test_signals_stay_unblocked(void **state) {
    (void)state; // a server is running
    sigset_t blocked;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
    for (int signal = SIGHUP; signal <= SIGTERM; signal++)
        assert_false(sigismember(&blocked, signal));
}

// A listener with a full queue, which answers no further client.
static void test_full_queue(void **state) {
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fds[8], count = 0;
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 0), 0);
    Error err = {0};
    for (; count < 8; count++) {
        fds[count] = net_connect(HOST, net_port(listener), clock_ns() + 200000000, &err);
        if (fds[count] < 0) break;
    }
    assert_in_range(count, 1, 7);
    check_message(&err, strerror(ETIMEDOUT));
    for (int i = 0; i < count; i++) close(fds[i]);
    close(listener);
}

static int poll_errors[3]; // errno of the next calls of poll; 0: success

int __real_poll(struct pollfd *entries, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms);

// A simulated clock, which poll advances to `deadline_ns`; poll's timeouts are recorded.
static struct {
    uint64_t now_ns, deadline_ns; // now_ns 0: the real clock
    int polls, timeout_ms, events;
} still;

uint64_t __real_clock_ns(void);
uint64_t __wrap_clock_ns(void);

uint64_t __wrap_clock_ns(void) {
    return still.now_ns ? still.now_ns : __real_clock_ns();
}

int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms) {
    if (still.now_ns) {
        assert_int_equal(count, 1);
        still.polls++;
        still.timeout_ms = timeout_ms;
        still.events = entries[0].events;
        still.now_ns = still.deadline_ns;
        return 0;
    }
    errno = poll_errors[0];
    memmove(poll_errors, poll_errors + 1, sizeof poll_errors - sizeof *poll_errors);
    return errno ? -1 : __real_poll(entries, count, timeout_ms);
}

static bool connects_at_once, meets_itself;

int __real_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __real_getpeername(int fd, struct sockaddr *address, socklen_t *bytes);
int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *bytes);

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes) {
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    const int status = __real_connect(fd, address, bytes);
    if (!connects_at_once) return status;
    assert_int_equal(__real_poll(&entry, 1, 10000), 1);
    return 0;
}

int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *bytes) {
    return meets_itself ? getsockname(fd, address, bytes) : __real_getpeername(fd, address, bytes);
}

// A connection that is established at once, and one that is connected to itself.
static void test_ways_to_connect(void **state) {
    (void)state;
    Error err = {0};
    const int listener = net_listen(HOST, 0, &err);
    for (int way = 0; way < 4; way++) {
        connects_at_once = way % 2;
        meets_itself = way / 2;
        err = (Error){0};
        const int fd = net_connect(HOST, net_port(listener), clock_ns() + 10000000000, &err);
        assert_int_equal(fd >= 0, !meets_itself);
        if (fd >= 0) close(fd);
        if (meets_itself) check_message(&err, strerror(ECONNREFUSED));
    }
    connects_at_once = meets_itself = false;
    close(listener);
}

// A server at an IPv6 address reports its port and accepts a client.
static void test_ipv6(void **state) {
    (void)state;
    Error err = {0};
    StoreServer *server = store_serve("::1", 0, TOKEN, &err);
    if (!server) skip(); // the machine lacks IPv6
    assert_in_range(store_server_port(server), 1, 65535);
    Store *store = store_connect("::1", store_server_port(server), TOKEN, LONG_S, &err);
    assert_non_null(store);
    assert_int_equal(store_set(store, "k", "six", 3, &err), 0);
    assert_holds(store, "k", "six");
    store_close(store);
    store_server_close(server);
}

static void test_nobody_there(void **state) {
    (void)state;
    Error err = {0};
    // Bound but not listening: reserves the port.
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int bound = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(bound, (struct sockaddr *)&address, sizeof address), 0);
    assert_null(store_connect(HOST, net_port(bound), TOKEN, 0.5, &err));
    close(bound);
    assert_non_null(strstr(err.message, "no store within 0.5 s"));
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
    char holder[64], name[32] = "";
    FILE *file = fopen("/proc/self/comm", "r");
    assert_true(file && fgets(name, sizeof name, file));
    fclose(file);
    name[strcspn(name, "\n")] = '\0';
    snprintf(holder, sizeof holder, " (held by %s, pid %d)", name, getpid());
    assert_int_equal(err.status, STATUS_FAILED);
    assert_non_null(strstr(err.message, strerror(EADDRINUSE)));
    assert_non_null(strstr(err.message, holder));
}

static const char *missing; // a file of /proc that cannot be opened
static char *table;         // content of /proc/net/tcp; NULL: the machine's

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode) {
    errno = ENOENT;
    if (table && strcmp(path, "/proc/net/tcp") == 0) return fmemopen(table, strlen(table), "r");
    return missing && strcmp(path, missing) == 0 ? NULL : __real_fopen(path, mode);
}

// The holder of an IPv6 port is found without the table of IPv4, and its name is optional.
static void test_holder_of_an_ipv6_port(void **state) {
    (void)state;
    Error err = {0};
    char wanted[64], own[32];
    snprintf(own, sizeof own, "/proc/%d/comm", getpid());
    const int listener = net_listen("::1", 0, &err), port = net_port(listener);
    if (listener < 0) skip(); // the machine lacks IPv6
    const char *const files[] = {NULL, "/proc/net/tcp", "/proc/net/tcp6", own};
    for (int i = 0; i < 4; i++) {
        err = (Error){0};
        missing = files[i];
        assert_int_equal(net_listen("::1", port, &err), -1);
        missing = NULL;
        snprintf(wanted, sizeof wanted, ", pid %d)", getpid());
        if (i == 3) snprintf(wanted, sizeof wanted, " (held by ?, pid %d)", getpid());
        assert_int_equal(strstr(err.message, wanted) != NULL, i != 2);
        assert_int_equal(strstr(err.message, "held by") != NULL, i != 2);
    }
    close(listener);
}

// The holder is the process of the first socket that listens at the port: not of another port's
// listener, nor of a connection from the port.
static void test_holder_listens_at_the_port(void **state) {
    (void)state;
    static const struct {
        int port; // added to the listener's
        unsigned state;
        bool is_listener;
    } lines[] = {{1, 0x0A, false}, {0, 0x01, false}, {0, 0x0A, true}, {0, 0x0A, false}};
    Error err = {0};
    struct stat status;
    size_t bytes = 0;
    char wanted[64];
    const int listener = net_listen(HOST, 0, &err), port = net_port(listener);
    assert_int_equal(fstat(listener, &status), 0);
    FILE *out = open_memstream(&table, &bytes);
    fputs("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when ...\n", out);
    for (int i = 0; i < 4; i++)
        fprintf(out,
                "   %d: 0100007F:%04X 00000000:0000 %02X 00000000:00000000 00:00000000 00000000"
                "     0        0 %lu 1 0000000000000000 100 0 0 10 0\n",
                i, (unsigned)(port + lines[i].port), lines[i].state,
                lines[i].is_listener ? (unsigned long)status.st_ino : 1UL);
    fclose(out);
    assert_int_equal(net_listen(HOST, port, &err), -1);
    free(table);
    table = NULL;
    snprintf(wanted, sizeof wanted, ", pid %d)", getpid());
    check_message(&err, wanted);
    close(listener);
}

// A listening socket that is in flight between processes has no process to name.
static void test_port_without_holder(void **state) {
    (void)state;
    Error err = {0};
    int ends[2], listener = net_listen(HOST, 0, &err), port = net_port(listener);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
                            .cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &listener, sizeof listener);
    char byte = 0;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.room};
    assert_int_equal(sendmsg(ends[0], &message, 0), 1);
    close(listener);
    assert_int_equal(net_listen(HOST, port, &err), -1);
    char wanted[120];
    snprintf(wanted, sizeof wanted, "cannot listen on %s:%d: %s", HOST, port, strerror(EADDRINUSE));
    assert_string_equal(err.message, wanted);
    close(ends[0]);
    close(ends[1]);
}

// Bound to 127.0.0.1 only: other loopback addresses have no listener.
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
    int fd = raw_connect(port);
    store_server_close(server);
    NetResult result = NET_DONE; // writing to a closed peer fails without a signal
    for (int i = 0; i < 100 && result == NET_DONE; i++) {
        size_t moved = 0;
        result = net_move(fd, NET_SEND, &port, 1, &moved, 0);
        usleep(1000);
    }
    assert_int_equal(result, NET_CLOSED);
    close(fd);
    assert_int_equal(store_set(store, "k", "v", 1, &err), -1);
    assert_non_null(strstr(err.message, "closed the connection"));
    err = (Error){0};
    assert_int_equal(store_set(store, "k", "v", 1, &err), -1);
    assert_non_null(strstr(err.message, "broken"));
    store_close(store);
    server = store_serve(HOST, port, TOKEN, &err); // the port is reusable at once
    assert_non_null(server);
    store_server_close(server);
}

// Makes {listener, client, server} at the host. Returns false if the machine lacks the address.
static bool make_sockets(const char *host, int sockets[3]) {
    Error err = {0};
    sockets[0] = net_listen(host, 0, &err);
    if (sockets[0] < 0) return false;
    sockets[1] = net_connect(host, net_port(sockets[0]), clock_ns() + 10000000000, &err);
    assert_true(sockets[1] >= 0);
    struct pollfd entry = {.fd = sockets[0], .events = POLLIN};
    assert_int_equal(poll(&entry, 1, 10000), 1);
    sockets[2] = net_accept(sockets[0]);
    assert_true(sockets[2] >= 0);
    return true;
}

static void test_sockets(void **state) {
    (void)state;
    static const char *const hosts[] = {HOST, "::1"};
    for (int h = 0; h < 2; h++) {
        int sockets[3];
        if (!make_sockets(hosts[h], sockets)) continue;
        char name[NET_NAME_MAX];
        for (int i = 0; i < 3; i++) {
            int no_delay = 0;
            socklen_t bytes = sizeof no_delay;
            assert_int_equal(fcntl(sockets[i], F_GETFD), FD_CLOEXEC);
            assert_int_equal(fcntl(sockets[i], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
            getsockopt(sockets[i], IPPROTO_TCP, TCP_NODELAY, &no_delay, &bytes);
            if (i > 0) assert_int_not_equal(no_delay, 0);
            net_peer_name(sockets[i], name);
            assert_string_equal(name, i > 0 ? hosts[h] : "?");
        }
        assert_int_equal(net_accept(sockets[0]), -1);
        assert_int_equal(errno, EAGAIN);
        for (int i = 0; i < 3; i++) close(sockets[i]);
    }
    Error err = {0};
    assert_int_equal(net_connect("no such host", 1, clock_ns() + 1000000000, &err), -1);
    assert_int_equal(err.status, STATUS_FAILED); // retried: its machine may still be booting
    err = (Error){0};
    assert_int_equal(net_listen("no such host", 0, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
}

static void *send_late(void *socket_fd) {
    usleep(20000);
    assert_int_equal(send(*(int *)socket_fd, "cd", 2, MSG_NOSIGNAL), 2);
    return NULL;
}

// Timeouts of poll are at least 1 ms, at most a minute, and end at the deadline.
static void test_waits(void **state) {
    (void)state;
    static const struct {
        uint64_t left_ns;
        int ms;
    } cases[] = {{0, 0},
                 {1, 1},
                 {999999, 1},
                 {1000000, 2},
                 {1000000 * UINT64_C(59998), 59999},
                 {1000000 * UINT64_C(59999), 60000},
                 {1000000 * UINT64_C(60000) - 1, 60000},
                 {1000000 * UINT64_C(60000), 60000},
                 {1000000 * UINT64_C(3600000), 60000},
                 {1000000 * UINT64_C(50000000000), 60000}};
    int sockets[3];
    assert_true(make_sockets(HOST, sockets));
    enum { LARGE = 64 << 20 };
    char *large = memory_zalloc(LARGE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (NetDirection direction = NET_SEND; direction <= NET_RECEIVE; direction++) {
            size_t moved = 0;
            still.now_ns = 5;
            still.deadline_ns = 5 + cases[i].left_ns;
            still.polls = still.timeout_ms = 0;
            assert_int_equal(
                net_move(sockets[1], direction, large, LARGE, &moved, still.deadline_ns),
                NET_TIMEOUT);
            assert_int_equal(still.polls, cases[i].ms > 0);
            assert_int_equal(still.timeout_ms, cases[i].ms);
            if (still.polls)
                assert_int_equal(still.events, direction == NET_SEND ? POLLOUT : POLLIN);
        }
    still.now_ns = 0;
    for (int i = 0; i < 3; i++) close(sockets[i]);
    free(large);
}

// A message in two parts, between which the deadline passes.
static void test_moves(void **state) {
    (void)state;
    int sockets[3];
    assert_true(make_sockets(HOST, sockets));
    const int to = sockets[1], from = sockets[2];
    char text[5] = "";
    size_t moved = 0;
    assert_int_equal(net_move(from, NET_RECEIVE, text, 0, &moved, 0), NET_DONE);
    assert_int_equal(send(to, "ab", 2, MSG_NOSIGNAL), 2);
    const uint64_t deadline = clock_ns() + 30000000;
    assert_int_equal(net_move(from, NET_RECEIVE, text, 4, &moved, deadline), NET_TIMEOUT);
    assert_true(clock_ns() >= deadline);
    assert_int_equal(moved, 2);
    assert_int_equal(net_move(from, NET_RECEIVE, text, 4, &moved, deadline), NET_TIMEOUT);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, send_late, &sockets[1]), 0);
    poll_errors[0] = EINTR;  // repeats the poll
    poll_errors[1] = ENOMEM; // tries the transfer
    assert_int_equal(net_move(from, NET_RECEIVE, text, 4, &moved, clock_ns() + 10000000000),
                     NET_DONE);
    pthread_join(thread, NULL);
    assert_int_equal(moved, 4);
    assert_string_equal(text, "abcd");
    // A peer that does not read: the buffers' capacity is sent, the rest after the peer reads.
    enum { LARGE = 64 << 20 };
    char *large = memory_zalloc(LARGE);
    moved = 0;
    assert_int_equal(net_move(to, NET_SEND, large, LARGE, &moved, 0), NET_TIMEOUT);
    assert_in_range(moved, 1, LARGE - 1);
    const size_t fitted = moved;
    assert_int_equal(net_move(to, NET_SEND, large, LARGE, &moved, clock_ns() + 20000000),
                     NET_TIMEOUT);
    size_t taken = 0;
    assert_int_equal(net_move(from, NET_RECEIVE, large, fitted, &taken, clock_ns() + 10000000000),
                     NET_DONE);
    const size_t before = moved;
    (void)net_move(to, NET_SEND, large, LARGE, &moved, clock_ns() + 100000000);
    assert_true(moved > before);
    close(to);
    taken = 0;
    assert_int_equal(net_move(from, NET_RECEIVE, large, LARGE, &taken, clock_ns() + 10000000000),
                     NET_CLOSED);
    assert_int_equal(fitted + taken, moved);
    moved = 0;
    assert_int_equal(net_move(-1, NET_SEND, text, 4, &moved, 0), NET_FAILED);
    free(large);
    close(from);
    close(sockets[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SERVED(test_arguments),
        SERVED(test_signals_stay_unblocked),
        cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_ways_to_connect),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_connect_before_serve),
        SERVED(test_port_in_use),
        cmocka_unit_test(test_holder_of_an_ipv6_port),
        cmocka_unit_test(test_holder_listens_at_the_port),
        cmocka_unit_test(test_port_without_holder),
        SERVED(test_binds_narrowly),
        cmocka_unit_test(test_server_gone),
        cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
