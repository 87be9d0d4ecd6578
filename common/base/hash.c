/* hash.c: see hash.h. The two constants are Fowler, Noll and Vo's. */
#include "common/base/hash.h"

uint64_t hash_bytes(uint64_t so_far, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) so_far = (so_far ^ at[i]) * UINT64_C(0x100000001b3);
    return so_far;
}
