/* port_holder.h: who listens on a TCP port of this machine, for an error message that helps.
 *
 * /proc/net/tcp and tcp6 give the listening socket's inode; the process that has it open is found
 * among the descriptors in /proc/PID/fd that this user may read. A courtesy, not a promise: other
 * users' processes stay invisible, and the answer may be stale by the time it is read.
 */
#ifndef DDP_STORE_PORT_HOLDER_H
#define DDP_STORE_PORT_HOLDER_H

#include <stddef.h>

// Writes " (held by NAME, pid N)", or "" if it cannot be found out.
void port_holder_name(int port, char *text, size_t capacity);

#endif
