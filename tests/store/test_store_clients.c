/* test_store_clients.c: misbehaving clients do not affect others; many clients. */
#include "tests/rigs/store_rig.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- Misbehaving clients --

// Returns a connection after its handshake.
static int raw_greeted(const Served *served) {
    int fd = raw_connect(served->port);
    assert_int_equal(raw_shake_hands(fd, TOKEN, false), STORE_DONE);
    return fd;
}

static void test_garbage(void **state) {
    Served *served = *state;
    const char *http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    int fd = raw_connect(served->port);
    raw_send(fd, http, strlen(http));
    char byte;
    assert_int_equal(raw_receive(fd, &byte, 1), NET_CLOSED); // before the handshake's deadline
    close(fd);
    uint64_t x = 88172645463325252u; // xorshift: random bytes, the same in each run
    for (int round = 0; round < 200; round++) {
        uint8_t noise[64];
        for (size_t i = 0; i < sizeof noise; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            noise[i] = (uint8_t)x;
        }
        fd = round % 2 ? raw_greeted(served)
                       : raw_connect(served->port); // after and before the handshake
        raw_send(fd, noise, 1 + (size_t)(x % sizeof noise));
        close(fd);
    }
    assert_alive(served);
}

// Offset of the server's clock, which a test may advance; and the time at which a test stops it.
static _Atomic uint64_t set_forward_ns, stopped_ns;

uint64_t __real_clock_ns(void);
uint64_t __wrap_clock_ns(void);

uint64_t __wrap_clock_ns(void) {
    return stopped_ns ? stopped_ns : __real_clock_ns() + set_forward_ns;
}

// Connections without a handshake are closed at their deadline, all at once, even if the server has
// no other event.
static void test_silent_strangers(void **state) {
    Served *served = *state;
    int silent[3];
    char byte;
    for (int i = 0; i < 3; i++) silent[i] = raw_connect(served->port);
    assert_alive(served);
    set_forward_ns += 4000000000;
    assert_alive(served); // the server has accepted all connections
    for (int i = 0; i < 3; i++) {
        assert_int_equal(recv(silent[i], &byte, 1, MSG_DONTWAIT), -1);
        assert_int_equal(errno, EAGAIN);
    }
    set_forward_ns += 1001000000;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(raw_receive(silent[i], &byte, 1), NET_CLOSED);
        close(silent[i]);
    }
    assert_alive(served);
    set_forward_ns = 0;
}

// The deadlines of handshakes are checked once per second, not in each round.
static void test_strangers_are_checked_each_second(void **state) {
    Served *served = *state;
    const uint64_t start = clock_ns(), checked = start + 4900000000;
    char byte;
    stopped_ns = start;
    const int fd = raw_connect(served->port);
    assert_alive(served); // accepted, with a deadline at 5 s
    stopped_ns = checked;
    assert_alive(served);
    stopped_ns = checked + 999999999;
    assert_alive(served);
    assert_alive(served); // the rounds of the call before are complete
    const ssize_t early = recv(fd, &byte, 1, MSG_DONTWAIT);
    stopped_ns = checked + 1000000000;
    assert_alive(served);
    assert_alive(served);
    stopped_ns = 0;
    assert_int_equal(early, -1); // not closed
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    close(fd);
}

static void test_half_messages(void **state) {
    Served *served = *state;
    const uint8_t nonce[STORE_NONCE_BYTES] = {1};
    uint8_t hello[STORE_HELLO_BYTES], header[STORE_REQUEST_BYTES];
    store_write_hello(hello, nonce);
    StoreRequest set = {.id = 1, .op = STORE_OP_SET, .key_bytes = 1, .value_bytes = 60000};
    store_write_request(header, &set);
    int open[2 * STORE_REQUEST_BYTES], count = 0;
    for (size_t cut = 1; cut <= STORE_REQUEST_BYTES; cut++) {
        int early = raw_connect(served->port), late = raw_greeted(served);
        raw_send(early, hello, cut * 2 - 1);
        raw_send(late, header, cut);
        open[count++] = early;
        open[count++] = late;
    }
    assert_alive(served); // the unfinished requests are still open
    for (int i = 0; i < count; i++) close(open[i]);
    assert_alive(served);
    Error err = {0};
    assert_int_equal(store_wait(served->store, "k", 0, &err), -1); // no partial value was stored
}

static void test_byte_by_byte(void **state) {
    Served *served = *state;
    uint8_t message[STORE_REQUEST_BYTES + 4], reply[STORE_REPLY_BYTES];
    StoreRequest set = {.id = 7, .op = STORE_OP_SET, .key_bytes = 2, .value_bytes = 2};
    store_write_request(message, &set);
    memcpy(message + STORE_REQUEST_BYTES, "kkvv", 4);
    int fd = raw_connect(served->port);
    assert_int_equal(raw_shake_hands(fd, TOKEN, true), STORE_DONE);
    for (size_t i = 0; i < sizeof message; i++) raw_send(fd, &message[i], 1);
    assert_int_equal(raw_receive(fd, reply, sizeof reply), NET_DONE);
    assert_int_equal(store_read_u32(reply), 7);
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

// A client that requests a large value again and again and never reads: the server stops reading
// its requests.
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
    for (int i = 0; i < 20000; i++) { // until the client's send buffer is full
        moved = 0;
        if (net_move(fd, NET_SEND, message, sizeof message, &moved, 0) != NET_DONE) break;
    }
    assert_alive(served);
    close(fd);
    assert_alive(served);

    // A client that reads late: the replies exceed the sockets' buffers, and arrive in order.
    enum { REPLIES = 300 };
    fd = raw_greeted(served);
    for (uint32_t i = 0; i < REPLIES; i++) {
        get.id = i;
        store_write_request(message, &get);
        raw_send(fd, message, sizeof message);
    }
    assert_alive(served);
    for (uint32_t i = 0; i < REPLIES; i++) {
        uint8_t reply[STORE_REPLY_BYTES];
        assert_int_equal(raw_receive(fd, reply, sizeof reply), NET_DONE);
        assert_int_equal(store_read_u32(reply), i);
        assert_int_equal(store_read_u32(reply + 8), STORE_VALUE_MAX);
        assert_int_equal(raw_receive(fd, value, STORE_VALUE_MAX), NET_DONE);
    }
    close(fd);
    free(value);
    assert_alive(served);
}

// Number of descriptors watched by this process's epolls, according to the kernel.
static int watched_descriptors(void) {
    int watched = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char path[64], kind[64] = "", line[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, kind, sizeof kind - 1) < 0 || !strstr(kind, "eventpoll")) continue;
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        while (fgets(line, sizeof line, file)) watched += strncmp(line, "tfd:", 4) == 0;
        fclose(file);
    }
    return watched;
}

// A process forked during a connection holds duplicates of both descriptors, so that closing the
// originals does not end the connection. The server must remove it from epoll: bytes that still
// arrive would be handled for a freed client (which AddressSanitizer detects).
static void test_forked_process_holds_a_connection(void **state) {
    Served *served = *state;
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    Error err = {0};
    assert_int_equal(store_set(served->store, "k", "v", 1, &err), 0);
    int watched = watched_descriptors();
    int fd = raw_greeted(served);
    assert_int_equal(watched_descriptors(), watched + 1);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        char byte;
        close(pipe_ends[1]);
        _exit(read(pipe_ends[0], &byte, 1) == 0 ? 0 : 1); // blocks until the parent closes its end
    }
    assert_true(pid > 0);
    const StoreRequest broken = {.id = 1, .op = 99, .key_bytes = 1};
    uint8_t header[STORE_REQUEST_BYTES], reply[STORE_REPLY_BYTES];
    store_write_request(header, &broken);
    raw_send(fd, header, sizeof header);
    assert_int_equal(raw_receive(fd, reply, sizeof reply), NET_DONE); // then the server closes
    assert_holds(served->store, "k", "v"); // the server has removed the connection
    raw_send(fd, header, sizeof header);
    assert_holds(served->store, "k", "v");
    assert_int_equal(watched_descriptors(), watched);
    close(fd);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

// ---- Many clients

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

// Closing a server frees its memory.
static void test_memory_is_returned(void **state) {
    (void)state;
    enum { VALUES = 100 };
    char *value = calloc(1, STORE_VALUE_MAX);
    const size_t before = mallinfo2().uordblks;
    for (int round = 0; round < 2; round++) {
        Error err = {0};
        StoreServer *server = store_serve(HOST, 0, TOKEN, &err);
        Store *store = new_client(store_server_port(server));
        for (int i = 0; i < VALUES; i++) {
            char key[16];
            snprintf(key, sizeof key, "%d", i / 2); // every second write replaces a value
            assert_int_equal(store_set(store, key, value, STORE_VALUE_MAX, &err), 0);
        }
        store_close(store);
        store_server_close(server);
        store_server_close(NULL);
        store_close(NULL);
    }
    const size_t after = mallinfo2().uordblks;
    assert_true(after < before + STORE_VALUE_MAX);
    free(value);
}

// The buffer of a large value is freed while its client is idle.
static void test_large_buffers_are_returned(void **state) {
    Served *served = *state;
    enum { CLIENTS = 30 };
    int fds[CLIENTS];
    const size_t bytes = STORE_REQUEST_BYTES + 1 + STORE_VALUE_MAX;
    uint8_t *message = calloc(1, bytes), reply[STORE_REPLY_BYTES];
    for (int i = 0; i < CLIENTS; i++) fds[i] = raw_greeted(served);
    const size_t before = mallinfo2().uordblks;
    for (int i = 0; i < CLIENTS; i++)
        for (uint8_t op = STORE_OP_SET; op <= STORE_OP_GET; op++) {
            const uint32_t value = op == STORE_OP_SET ? STORE_VALUE_MAX : 0;
            store_write_request(message, &(StoreRequest){1, op, true, 1, value, 0});
            raw_send(fds[i], message, STORE_REQUEST_BYTES + 1 + value);
            assert_int_equal(raw_receive(fds[i], reply, sizeof reply), NET_DONE);
            if (value == 0)
                assert_int_equal(raw_receive(fds[i], message, STORE_VALUE_MAX), NET_DONE);
        }
    assert_alive(served);
    assert_true(mallinfo2().uordblks < before + CLIENTS * STORE_VALUE_MAX / 2);
    for (int i = 0; i < CLIENTS; i++) close(fds[i]);
    free(message);
}

// Starts a store in a child with limits of `soft` and `hard` descriptors, whose table has free
// entries for `left` connections (0: the whole table).
static pid_t serve_elsewhere(rlim_t soft, rlim_t hard, int left, int *port) {
    const struct rlimit few = {soft, hard};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        Error err = {0};
        prctl(PR_SET_PDEATHSIG, SIGKILL); // ends with a failed test
        close(STDIN_FILENO);              // its first descriptor is 0
        bool limited = setrlimit(RLIMIT_NOFILE, &few) == 0;
        StoreServer *server = limited ? store_serve(HOST, 0, TOKEN, &err) : NULL;
        if (server) *port = store_server_port(server);
        struct rlimit raised;
        if (getrlimit(RLIMIT_NOFILE, &raised) != 0 || raised.rlim_cur != hard) *port = 0;
        int last = -1;
        for (int fd; left > 0 && (fd = dup(ends[1])) >= 0;) last = fd;
        for (; left > 0; left--) close(last--);
        if (write(ends[1], port, sizeof *port) != sizeof *port) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ends[0], port, sizeof *port), sizeof *port);
    close(ends[0]);
    close(ends[1]);
    if (*port == 0) fail_msg("no store, or not with %d descriptors", (int)hard);
    return pid;
}

static void end_store(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

enum { TRIED = 180 };

// Connects clients until one is refused. Returns the number of accepted clients.
static int fill_with_clients(int port, int fds[TRIED]) {
    for (int i = 0; i < TRIED; i++) {
        fds[i] = raw_connect(port);
        StoreStatus status = raw_shake_hands(fds[i], TOKEN, false);
        if (status == STORE_DONE) continue;
        assert_int_equal(status, STORE_NO_ROOM);
        close(fds[i]);
        return i;
    }
    return TRIED;
}

static void close_clients(const int *fds, int count) {
    for (int i = 0; i < count; i++) close(fds[i]);
}

// The server raises its process's limit of descriptors, reserves 64 for the rest of the process and
// 64 for refused clients, but serves at least half the limit. It tells refused clients the reason,
// and continues.
static void test_refuses_beyond_its_limit(void **state) {
    (void)state;
    static const struct {
        rlim_t soft, hard;
        int clients;
    } cases[] = {{100, 160, 80}, {256, 256, 128}, {257, 257, 129}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fds[TRIED], port = 0;
        pid_t pid = serve_elsewhere(cases[i].soft, cases[i].hard, 0, &port);
        int served = fill_with_clients(port, fds);
        assert_int_equal(served, cases[i].clients);
        Error err = {0};
        // A refused client retries until its timeout, which may expire during an attempt.
        for (int tries = 0; i == 0 && tries < 9 && !strstr(err.message, "no room"); tries++) {
            err = (Error){0};
            assert_null(store_connect(HOST, port, TOKEN, 1, &err));
        }
        if (i == 0) check_message(&err, "no room for another client");
        close_clients(fds, served);
        Store *again = new_client(port); // accepted again
        assert_int_equal(store_set(again, "k", "v", 1, &err), 0);
        store_close(again);
        end_store(pid);
    }
}

// Beyond the clients, 64 connections without a handshake are kept, so that a client can be refused
// with a reply; the next connection is closed.
static void test_strangers_are_limited(void **state) {
    (void)state;
    enum { KEPT = 80 + 64 };
    int fds[KEPT + 1], port = 0;
    pid_t pid = serve_elsewhere(160, 160, 0, &port);
    for (int i = 0; i <= KEPT; i++) fds[i] = raw_connect(port);
    char byte;
    assert_int_equal(raw_receive(fds[KEPT], &byte, 1), NET_CLOSED);
    close_clients(fds, KEPT + 1);
    close(raw_connect(port));
    store_close(new_client(port));
    end_store(pid);
}

// Without free descriptors the server leaves clients in the listen queue until one is free,
// repeatedly.
static void test_out_of_descriptors(void **state) {
    (void)state;
    enum { LEFT = 4 };
    int fds[LEFT + 2], port = 0;
    pid_t pid = serve_elsewhere(160, 160, LEFT, &port);
    for (int i = 0; i < LEFT + 2; i++) fds[i] = raw_connect(port); // completed by the kernel
    for (int i = 0; i < LEFT + 2; i++) {
        if (i >= LEFT) close(fds[i - LEFT]);
        assert_int_equal(raw_shake_hands(fds[i], TOKEN, false), STORE_DONE);
    }
    close_clients(fds + 2, LEFT);
    end_store(pid);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SERVED(test_garbage),
        SERVED(test_silent_strangers),
        SERVED(test_strangers_are_checked_each_second),
        SERVED(test_half_messages),
        SERVED(test_byte_by_byte),
        SERVED(test_broken_requests),
        SERVED(test_client_that_never_reads),
        SERVED(test_forked_process_holds_a_connection),
        SERVED(test_hundreds_of_clients),
        SERVED(test_concurrent_adds),
        cmocka_unit_test(test_memory_is_returned),
        SERVED(test_large_buffers_are_returned),
        cmocka_unit_test(test_refuses_beyond_its_limit),
        cmocka_unit_test(test_strangers_are_limited),
        cmocka_unit_test(test_out_of_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
