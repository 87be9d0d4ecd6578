/* rendezvous_internal.h: the calls between the files of this folder, and the launcher's token. */
#ifndef DDP_RENDEZVOUS_RENDEZVOUS_INTERNAL_H
#define DDP_RENDEZVOUS_RENDEZVOUS_INTERNAL_H

#include "ddp/rendezvous/init.h"

enum { INIT_PORT_MAX = 65535 };

// init_from_env, except that rank or world_size may be given (-1: not given).
int init_from_env_and(Rendezvous *rendezvous, int rank, int world_size, bool alone_is_fine,
                      Error *err);
// Copies DDPRUN_TOKEN; does not change token if it is unset. Returns 0, or -1 with err filled if it
// is too long.
int init_read_token(char token[STORE_TOKEN_MAX + 1], Error *err);
// Writes the IPv4 address of the first network interface that is up and not loopback: the address
// under which other hosts reach this one. On a host with several networks set MASTER_ADDR instead.
// 0, or -1 with err filled.
int init_own_address(char *text, size_t capacity, Error *err);
// Compares the settings of two ranks (Rendezvous.alike), lines "NAME VALUE\n". Returns 0, or -1
// with an error that names the first line that differs, both values and both ranks.
int compare_settings(const char *mine, int my_rank, const char *theirs, int rank, Error *err);

#endif
