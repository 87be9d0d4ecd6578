/* hash.h: a number for some bytes, by which two lists of bytes are told apart.
 *
 * FNV-1a of 64 bits: one multiplication per byte, the same on every machine. Good enough for names
 * and for noticing that two ranks see different things. It is no proof against somebody who wants
 * two lists to look alike.
 */
#ifndef COMMON_BASE_HASH_H
#define COMMON_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0xcbf29ce484222325) // the hash of no bytes

// The hash of what was hashed so far, followed by these bytes.
uint64_t hash_bytes(uint64_t so_far, const void *data, size_t bytes);

#endif
