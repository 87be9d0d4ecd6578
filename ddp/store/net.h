/* net.h: the TCP that the store needs, and no more: listen, connect, and one loop that moves bytes.
 *
 * Every socket is close-on-exec, non-blocking and without Nagle's delay. Reads and writes may be
 * short at any time; net_move is the only place that deals with it, for the client (which waits
 * until a deadline) and for the server (which never waits: deadline 0).
 */
#ifndef DDP_STORE_NET_H
#define DDP_STORE_NET_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef enum NetResult {
    NET_DONE,
    NET_TIMEOUT, // the deadline passed; *moved says how far it came
    NET_CLOSED,  // the other side is gone
    NET_FAILED,  // errno says why
} NetResult;

typedef enum NetDirection { NET_SEND, NET_RECEIVE } NetDirection;

// Listens on this address and nothing wider. With port 0 the system chooses one. Returns the
// socket, or -1 with err filled: STATUS_USAGE if it is no address of this machine. For a port in
// use the text says who holds it where that can be found out.
int net_listen(const char *host, int port, Error *err);
int net_port(int socket_fd); // the local port

enum { NET_NAME_MAX = 64 };
// Writes the address of the other side in digits, for a message, or "?" if it cannot be told.
void net_peer_name(int socket_fd, char name[NET_NAME_MAX]);

// Whether the host has an address. Returns 0, or -1 with err filled (STATUS_USAGE).
int net_check_host(const char *host, Error *err);

// One attempt to connect before clock_ns() reaches deadline_ns. Returns the socket, or -1 with err
// filled. (Looking up a host name may take longer: the resolver has deadlines of its own.)
int net_connect(const char *host, int port, uint64_t deadline_ns, Error *err);

// Takes one waiting connection, prepared like the others; -1 with errno set if there is none.
int net_accept(int listener);

// Moves bytes [*moved, bytes) of data, advancing *moved, until all are moved or clock_ns() reaches
// deadline_ns. With deadline_ns 0 it moves what can be moved at once. Sending only reads data.
NetResult net_move(int socket_fd, NetDirection direction, void *data, size_t bytes, size_t *moved,
                   uint64_t deadline_ns);

#endif
