/* net.c: see net.h.
 *
 * Sockets are non-blocking: a call that would block waits in poll(2) for the time until the
 * deadline. MSG_NOSIGNAL avoids SIGPIPE, so the process's signal handlers are left alone.
 */
#include "ddp/store/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp/store/port_holder.h"

// False: the deadline has passed, as 0 always has.
static bool wait_ready(int socket_fd, short events, uint64_t deadline_ns) {
    for (;;) {
        uint64_t now = clock_ns();
        if (now >= deadline_ns) return false;
        uint64_t left_ms = (deadline_ns - now) / 1000000 + 1;
        struct pollfd entry = {.fd = socket_fd, .events = events};
        if (poll(&entry, 1, left_ms > 60000 ? 60000 : (int)left_ms) > 0) return true;
    }
}

NetResult net_move(int socket_fd, NetDirection direction, void *data, size_t bytes, size_t *moved,
                   uint64_t deadline_ns) {
    while (*moved < bytes) {
        char *at = (char *)data + *moved;
        ssize_t n = direction == NET_SEND
                        ? send(socket_fd, at, bytes - *moved, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(socket_fd, at, bytes - *moved, MSG_DONTWAIT);
        if (n > 0) {
            *moved += (size_t)n;
        } else if (n == 0) {
            return NET_CLOSED;
        } else if (errno == EAGAIN) {
            short events = direction == NET_SEND ? POLLOUT : POLLIN;
            if (!wait_ready(socket_fd, events, deadline_ns)) return NET_TIMEOUT;
        } else if (errno == ECONNRESET || errno == EPIPE) {
            return NET_CLOSED;
        } else if (errno != EINTR) {
            return NET_FAILED;
        }
    }
    return NET_DONE;
}

// status: of the error for an unknown address.
static struct addrinfo *look_up(const char *host, int port, int status, Error *err) {
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    hints.ai_flags = AI_NUMERICSERV;
    struct addrinfo *list = NULL;
    int code = getaddrinfo(host, service, &hints, &list);
    if (code == 0) return list;
    return error_null(err, status, "address '%s' cannot be looked up: %s", host,
                      gai_strerror(code));
}

static void set_no_delay(int socket_fd) {
    int on = 1; // a failure costs latency only
    (void)setsockopt(socket_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static int listen_at(const struct addrinfo *address) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    // Ignores connections of an earlier run in TIME_WAIT, but not a listener.
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

int net_check_port(int port, int least, Error *err) {
    if (port >= least && port <= 65535) return 0;
    return error_set(err, STATUS_USAGE, "port %d: expected %d to 65535", port, least);
}

int net_listen(const char *host, int port, Error *err) {
    struct addrinfo *list = look_up(host, port, STATUS_USAGE, err);
    if (!list) return -1;
    int fd = -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) fd = listen_at(a);
    int cause = errno;
    freeaddrinfo(list);
    if (fd >= 0) return fd;
    char holder[128] = "";
    if (cause == EADDRINUSE) port_holder_name(port, holder, sizeof holder);
    bool elsewhere = cause == EADDRNOTAVAIL; // not this machine's address
    return error_set(err, elsewhere ? STATUS_USAGE : STATUS_FAILED, "cannot listen on %s:%d: %s%s",
                     host, port, strerror(cause), holder);
}

int net_port(int socket_fd) {
    struct sockaddr_storage name = {0};
    socklen_t bytes = sizeof name;
    if (getsockname(socket_fd, (struct sockaddr *)&name, &bytes) != 0) return -1;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&name;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&name;
    // getsockname has filled it in: NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
    return ntohs(name.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
}

void net_peer_name(int socket_fd, char name[NET_NAME_MAX]) {
    struct sockaddr_storage peer = {0};
    socklen_t bytes = sizeof peer;
    snprintf(name, NET_NAME_MAX, "?");
    if (getpeername(socket_fd, (struct sockaddr *)&peer, &bytes) != 0) return;
    (void)getnameinfo((struct sockaddr *)&peer, bytes, name, NET_NAME_MAX, NULL, 0,
                      NI_NUMERICHOST); // "?" on failure
}

int net_accept(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) set_no_delay(fd);
    return fd;
}

// A client that connects to a local port without a listener may get that port as its own and be
// connected to itself (TCP's simultaneous open).
static bool connected_to_itself(int fd) {
    struct sockaddr_storage mine, theirs;
    memset(&mine, 0, sizeof mine);
    memset(&theirs, 0, sizeof theirs);
    socklen_t mine_bytes = sizeof mine, theirs_bytes = sizeof theirs;
    if (getsockname(fd, (struct sockaddr *)&mine, &mine_bytes) != 0) return false;
    if (getpeername(fd, (struct sockaddr *)&theirs, &theirs_bytes) != 0) return false;
    return mine_bytes == theirs_bytes && memcmp(&mine, &theirs, mine_bytes) == 0;
}

static int connect_to(const struct addrinfo *address, uint64_t deadline_ns) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    int cause = 0;
    if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
        cause = errno;
        if (cause == EINPROGRESS) {
            socklen_t bytes = sizeof cause;
            if (!wait_ready(fd, POLLOUT, deadline_ns))
                cause = ETIMEDOUT;
            else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &bytes) != 0)
                cause = errno;
        }
    }
    if (cause == 0 && connected_to_itself(fd)) cause = ECONNREFUSED;
    if (cause == 0) {
        set_no_delay(fd);
        return fd;
    }
    close(fd);
    errno = cause;
    return -1;
}

int net_check_host(const char *host, Error *err) {
    struct addrinfo *list = look_up(host, 0, STATUS_USAGE, err);
    if (!list) return -1;
    freeaddrinfo(list);
    return 0;
}

int net_connect(const char *host, int port, uint64_t deadline_ns, Error *err) {
    // An unknown name may be retried: its machine may not have started yet.
    struct addrinfo *list = look_up(host, port, STATUS_FAILED, err);
    if (!list) return -1;
    int fd = -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) fd = connect_to(a, deadline_ns);
    int cause = errno;
    freeaddrinfo(list);
    if (fd >= 0) return fd;
    return error_set(err, STATUS_FAILED, "cannot connect to %s:%d: %s", host, port,
                     strerror(cause));
}
