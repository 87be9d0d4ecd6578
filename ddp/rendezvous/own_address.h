/* own_address.h: under which address do the other hosts of a job reach this one? */
#ifndef DDP_RENDEZVOUS_OWN_ADDRESS_H
#define DDP_RENDEZVOUS_OWN_ADDRESS_H

#include <stddef.h>

#include "common/base/error.h"

// The IPv4 address of this host's first network interface that is up and no loopback. Where a host
// has several networks, MASTER_ADDR says which one is meant. Returns 0, or -1 with err filled.
int own_address(char *text, size_t capacity, Error *err);

#endif
