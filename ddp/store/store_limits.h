/* store_limits.h: the store's limits, in bytes, which its interface and its protocol share. */
#ifndef DDP_STORE_STORE_LIMITS_H
#define DDP_STORE_STORE_LIMITS_H

enum { STORE_KEY_MAX = 256, STORE_VALUE_MAX = 65536, STORE_TOKEN_MAX = 64 };

#endif
