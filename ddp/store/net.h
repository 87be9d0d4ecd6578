/* net.h: TCP for the store: listen, connect, accept, and one loop that sends and receives.
 *
 * Every socket is close-on-exec, non-blocking and without Nagle's delay. Short reads and writes are
 * handled in net_move only, for the client (which blocks until a deadline) and for the server
 * (which never blocks: deadline 0).
 */
#ifndef DDP_STORE_NET_H
#define DDP_STORE_NET_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef enum NetResult {
    NET_DONE,
    NET_TIMEOUT, // after *moved bytes
    NET_CLOSED,  // by the peer
    NET_FAILED,  // see errno
} NetResult;

typedef enum NetDirection { NET_SEND, NET_RECEIVE } NetDirection;

// 0 if the port is in [least, 65535]; otherwise -1 with err filled.
int net_check_port(int port, int least, Error *err);
// Listens on this address only. port 0: any free port. Returns the socket, or -1 with err filled:
// STATUS_USAGE if the address is not this machine's. For a port in use the error names the process
// that holds it, if /proc shows it.
int net_listen(const char *host, int port, Error *err);
int net_port(int socket_fd); // the local port

enum { NET_NAME_MAX = 64 };
// Writes the peer's numeric address, "?" if it is unknown, for messages.
void net_peer_name(int socket_fd, char name[NET_NAME_MAX]);

// Resolves the host. 0, or -1 with err filled (STATUS_USAGE).
int net_check_host(const char *host, Error *err);

// Connects, one attempt, until clock_ns() reaches deadline_ns. Returns the socket, or -1 with err
// filled. (Resolving a host name may take longer: the resolver has its own time-outs.)
int net_connect(const char *host, int port, uint64_t deadline_ns, Error *err);

// Accepts one pending connection; -1 with errno set if there is none.
int net_accept(int listener);

// Sends or receives bytes [*moved, bytes) of data and advances *moved, until all are moved or
// clock_ns() reaches deadline_ns; deadline_ns 0: never blocks. NET_SEND only reads data.
NetResult net_move(int socket_fd, NetDirection direction, void *data, size_t bytes, size_t *moved,
                   uint64_t deadline_ns);

#endif
