/* rendezvous_internal.h: shared by init_env.c and init_url.c, the two sources of a Rendezvous
 * (ddp/rendezvous/init.h).
 */
#ifndef DDP_RENDEZVOUS_RENDEZVOUS_INTERNAL_H
#define DDP_RENDEZVOUS_RENDEZVOUS_INTERNAL_H

#include "ddp/rendezvous/init.h"

enum { INIT_PORT_MAX = 65535 };

// Reads the environment, except rank or world_size if they are given (-1: not given).
int init_from_env_and(Rendezvous *rendezvous, int rank, int world_size, Error *err);
// Copies DDPRUN_TOKEN, "" if not set. -1 with err filled if it is too long.
int init_read_token(char token[STORE_TOKEN_MAX + 1], Error *err);

#endif
