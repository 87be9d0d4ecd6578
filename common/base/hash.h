/* hash.h: FNV-1a, 64 bits.
 *
 * One multiplication per byte, the same on every machine. For hashing texts and detecting that two
 * ranks have different data; not collision-resistant against an attacker.
 */
#ifndef COMMON_BASE_HASH_H
#define COMMON_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0xcbf29ce484222325) // the hash of no bytes

// Extends the hash `so_far` by these bytes.
uint64_t hash_bytes(uint64_t so_far, const void *data, size_t bytes);

#endif
