/* port_holder.h: the process that listens on a TCP port of this machine, for error messages.
 *
 * /proc/net/tcp and tcp6 give the listening socket's inode; /proc/PID/fd gives the process that has
 * it open: the lowest PID, because children inherit the socket of the process that opened it.
 * Best effort: other users' processes are invisible, and the result may be stale at once.
 */
#ifndef DDP_STORE_PORT_HOLDER_H
#define DDP_STORE_PORT_HOLDER_H

#include <stddef.h>

// Writes " (held by NAME, pid N)", or "" if it is unknown.
void port_holder_name(int port, char *text, size_t capacity);

#endif
