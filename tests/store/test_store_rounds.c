/* test_store_rounds.c: rounds of the server: which connections it reads while replies are unsent or
 * have failed; its own descriptors.
 */
#include "tests/rigs/store_rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

// ---- Unsent replies ---

// The server's connections. Its next sends on `fd` (0: any) return the results[next .. count)
// without sending; its reads from a connection of which the last one returned such a result are
// counted. While the gate is closed, its thread waits in net_move.
static struct {
    pthread_t tester; // this thread's moves are not the server's
    pthread_mutex_t gate;
    _Atomic int at_gate, next, count, fd, reads;
    NetResult results[4];
} unsent = {.gate = PTHREAD_MUTEX_INITIALIZER};

static void leave_unsent(int count, const NetResult *results) {
    memcpy(unsent.results, results, (size_t)count * sizeof *results);
    unsent.fd = unsent.reads = unsent.next = 0;
    unsent.count = count;
}

static bool stays_unsent(int fd, NetDirection to, NetResult *result) {
    if (to == NET_RECEIVE) {
        unsent.reads += unsent.fd == fd;
        return false;
    }
    const bool left = unsent.next < unsent.count && (unsent.fd == 0 || unsent.fd == fd);
    if (left) *result = unsent.results[unsent.next++];
    if (left) unsent.fd = fd;
    if (!left && unsent.fd == fd) unsent.fd = 0;
    return left;
}

NetResult __real_net_move(int fd, NetDirection to, void *data, size_t bytes, size_t *moved,
                          uint64_t);
NetResult __wrap_net_move(int fd, NetDirection to, void *data, size_t bytes, size_t *moved,
                          uint64_t);

NetResult __wrap_net_move(int fd, NetDirection to, void *data, size_t bytes, size_t *moved,
                          uint64_t deadline_ns) {
    NetResult refused;
    if (!pthread_equal(pthread_self(), unsent.tester)) {
        unsent.at_gate++;
        pthread_mutex_lock(&unsent.gate);
        pthread_mutex_unlock(&unsent.gate);
        unsent.at_gate--;
        if (stays_unsent(fd, to, &refused)) return refused;
    }
    return __real_net_move(fd, to, data, bytes, moved, deadline_ns);
}

// Sends a get, without or with wait, of a key of one letter.
static void send_get(int fd, char key, bool no_wait) {
    uint8_t message[STORE_REQUEST_BYTES + 1];
    const StoreRequest get = {.id = 1, .op = STORE_OP_GET, .no_wait = no_wait, .key_bytes = 1};
    store_write_request(message, &get);
    message[STORE_REQUEST_BYTES] = (uint8_t)key;
    raw_send(fd, message, sizeof message);
}

// While a reply is unsent, the server reads no further request of that client; and nothing after
// its connection has failed.
static void test_nothing_is_read_before_the_reply(void **state) {
    const Served *served = *state;
    static const NetResult results[] = {NET_TIMEOUT, NET_TIMEOUT, NET_TIMEOUT, NET_CLOSED};
    for (int fails = 0; fails < 2; fails++) {
        uint8_t reply[STORE_REPLY_BYTES];
        const int fd = raw_connect(served->port);
        assert_int_equal(raw_shake_hands(fd, TOKEN, false), STORE_DONE);
        leave_unsent(3 + fails, results);
        for (int i = 0; i < 2; i++) send_get(fd, 'x', true);
        for (int i = 0; i < 2 && !fails; i++)
            assert_int_equal(raw_receive(fd, reply, sizeof reply), NET_DONE);
        if (fails) assert_int_equal(raw_receive(fd, reply, 1), NET_CLOSED);
        assert_int_equal(unsent.next, 3 + fails);
        assert_int_equal(unsent.reads, 0);
        unsent.count = 0;
        close(fd);
    }
    assert_alive(served);
}

// In one round a client's set wakes another client, whose connection fails, and which has sent a
// request: that request is not read.
static void test_nothing_is_read_after_the_end(void **state) {
    const Served *served = *state;
    int fds[3]; // the first one holds the server; the second sets; the third waits
    uint8_t message[STORE_REQUEST_BYTES + 1], byte;
    for (int i = 0; i < 3; i++) {
        fds[i] = raw_connect(served->port);
        assert_int_equal(raw_shake_hands(fds[i], TOKEN, false), STORE_DONE);
    }
    send_get(fds[2], 'x', false);
    assert_alive(served); // the server has read it
    assert_alive(served);
    pthread_mutex_lock(&unsent.gate);
    send_get(fds[0], 'y', false);
    while (unsent.at_gate == 0) usleep(100);
    const StoreRequest set = {.id = 1, .op = STORE_OP_SET, .key_bytes = 1};
    store_write_request(message, &set);
    message[STORE_REQUEST_BYTES] = 'x';
    raw_send(fds[1], message, sizeof message);
    send_get(fds[2], 'x', true);
    leave_unsent(1, (NetResult[]){NET_CLOSED}); // the server's first send is to the third
    pthread_mutex_unlock(&unsent.gate);
    assert_int_equal(raw_receive(fds[2], &byte, 1), NET_CLOSED);
    assert_int_equal(unsent.next, 1);
    assert_int_equal(unsent.reads, 0);
    unsent.count = 0;
    for (int i = 0; i < 3; i++) close(fds[i]);
    assert_alive(served);
}

// ---- Descriptors ---

static enum { NONE, EVENTFD, EPOLL } gets_zero; // its next descriptor is 0

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);
int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);

int __wrap_eventfd(unsigned count, int flags) {
    if (gets_zero == EVENTFD) close(STDIN_FILENO);
    return __real_eventfd(count, flags);
}

int __wrap_epoll_create1(int flags) {
    if (gets_zero == EPOLL) close(STDIN_FILENO);
    return __real_epoll_create1(flags);
}

// A server whose eventfd or epoll is descriptor 0 serves, and closes it.
static void test_descriptor_zero(void **state) {
    (void)state;
    for (int i = EVENTFD; i <= EPOLL; i++) {
        Error err = {0};
        close(STDIN_FILENO);
        assert_int_equal(open("/dev/null", O_RDONLY), STDIN_FILENO);
        gets_zero = i;
        StoreServer *server = store_serve(HOST, 0, TOKEN, &err);
        gets_zero = NONE;
        CHECK_OK(server, err);
        assert_int_not_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
        store_close(new_client(store_server_port(server)));
        store_server_close(server);
        assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    }
}

int main(void) {
    unsent.tester = pthread_self();
    const struct CMUnitTest tests[] = {
        SERVED(test_nothing_is_read_before_the_reply),
        SERVED(test_nothing_is_read_after_the_end),
        cmocka_unit_test(test_descriptor_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
