/* fuzz_store.c: the store's server. A client with the correct token (first byte odd) or without it
 * (even) sends the rest of the input. Afterwards the server must still serve a correct client.
 */
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "ddp/store/protocol.h"
#include "ddp/store/store.h"
#include "tests/fuzz/fuzz.h"

static const char TOKEN[] = "a token";
enum { HONEST_TIMEOUT_S = 10 };

static int connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = HONEST_TIMEOUT_S};
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "no server");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return fd;
}

// The handshake of a client with the token. Returns false if the server refuses it.
static bool shake_hands(int fd) {
    StoreNonces nonces = {0};
    uint8_t hello[STORE_HELLO_BYTES], proof[STORE_PROOF_BYTES], answer[STORE_ANSWER_BYTES];
    store_write_hello(hello, nonces.client);
    if (send(fd, hello, sizeof hello, MSG_NOSIGNAL) < 0) return false;
    if (recv(fd, hello, sizeof hello, MSG_WAITALL) != sizeof hello) return false;
    if (!store_read_hello(hello, nonces.server)) return false;
    store_proof_make(proof, TOKEN, STORE_SIDE_CLIENT, &nonces);
    if (send(fd, proof, sizeof proof, MSG_NOSIGNAL) < 0) return false;
    if (recv(fd, answer, sizeof answer, MSG_WAITALL) != sizeof answer) return false;
    return store_read_u32(answer + STORE_MAGIC_BYTES) == STORE_DONE;
}

// Sends all bytes and reads until the server closes the connection; a server that never closes it
// is stuck.
static void talk(int port, const uint8_t *data, size_t size) {
    uint8_t heard[4096];
    int fd = connect_to(port);
    if (data[0] & 1) CHECK(shake_hands(fd), "the server refuses the right token");
    (void)!send(fd, data + 1, size - 1, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    ssize_t n;
    do n = recv(fd, heard, sizeof heard, 0);
    while (n > 0);
    CHECK(n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK), "the server does not hang up");
    close(fd);
}

static void check_alive(int port) {
    Error err = {0};
    Store *store = store_connect("127.0.0.1", port, TOKEN, HONEST_TIMEOUT_S, &err);
    if (!store || store_set(store, "honest", "yes", 3, &err) != 0) error_exit(&err);
    store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    StoreRequest request;
    if (size >= 1 + STORE_REQUEST_BYTES && store_read_request(data + 1, &request))
        CHECK(request.key_bytes <= STORE_KEY_MAX && request.value_bytes <= STORE_VALUE_MAX, "size");
    if (size < 1) return 0;
    Error err = {0};
    StoreServer *server = store_serve("127.0.0.1", 0, TOKEN, &err);
    if (!server) error_exit(&err);
    talk(store_server_port(server), data, size);
    check_alive(store_server_port(server));
    store_server_close(server);
    return 0;
}
