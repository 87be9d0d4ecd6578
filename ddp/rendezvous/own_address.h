/* own_address.h: the address under which other hosts reach this one. */
#ifndef DDP_RENDEZVOUS_OWN_ADDRESS_H
#define DDP_RENDEZVOUS_OWN_ADDRESS_H

#include <stddef.h>

#include "common/base/error.h"

// Writes the IPv4 address of the first network interface that is up and not loopback. On a host
// with several networks set MASTER_ADDR instead. 0, or -1 with err filled.
int own_address(char *text, size_t capacity, Error *err);

#endif
