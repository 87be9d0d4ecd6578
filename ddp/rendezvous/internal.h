/* internal.h: what env.c and url.c share: the environment and URLs are two ways to
 * say the same things (ddp/rendezvous/init.h).
 */
#ifndef DDP_RENDEZVOUS_INTERNAL_H
#define DDP_RENDEZVOUS_INTERNAL_H

#include "ddp/rendezvous/init.h"

enum { INIT_WORLD_MAX = 1 << 20, INIT_PORT_MAX = 65535 };

// The environment, where rank and world_size may be given as arguments (-1: they are not); what is
// given is not asked of the environment.
int init_from_env_and(Rendezvous *rendezvous, int rank, int world_size, Error *err);
// DDPRUN_TOKEN, or "".
int init_read_token(char token[STORE_TOKEN_MAX + 1], Error *err);

#endif
