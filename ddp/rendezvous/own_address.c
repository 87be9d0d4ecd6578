/* own_address.c: this host's address (ddp/rendezvous/rendezvous_internal.h). Reads the interfaces
 * instead of resolving the host's name, which often is 127.0.1.1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include "ddp/rendezvous/rendezvous_internal.h"

static bool reaches_others(const struct ifaddrs *interface) {
    const unsigned up = IFF_UP | IFF_RUNNING;
    return interface->ifa_addr && interface->ifa_addr->sa_family == AF_INET &&
           (interface->ifa_flags & up) == up && !(interface->ifa_flags & IFF_LOOPBACK);
}

int init_own_address(char *text, size_t capacity, Error *err) {
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return error_set(err, STATUS_FAILED, "getifaddrs: %s", strerror(errno));
    const struct ifaddrs *i = all;
    while (i && !reaches_others(i)) i = i->ifa_next;
    const struct sockaddr_in *address = i ? (const void *)i->ifa_addr : NULL;
    const bool found = address && inet_ntop(AF_INET, &address->sin_addr, text, (socklen_t)capacity);
    freeifaddrs(all);
    return found ? 0
                 : error_set(err, STATUS_FAILED,
                             "this host has no network: set MASTER_ADDR to rank 0's host");
}
