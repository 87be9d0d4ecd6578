/* arena.h: memory of a device, or of the host, for one step. Allocation increments a pointer;
 * arena_reset frees everything at once, and keeps the memory for the next step. Every training step
 * allocates the same sizes in the same order, so after the first step the arena allocates nothing
 * from the device.
 */
#ifndef COMMON_DEVICE_ARENA_H
#define COMMON_DEVICE_ARENA_H

#include <stddef.h>

#include "common/device/device.h"

typedef struct ArenaBlock ArenaBlock;

typedef struct Arena {
    Device *device; // NULL: the host
    ArenaBlock *first, *current;
    ArenaBlock *old; // the host's, of before the last reset: freed by the next one
} Arena;

Arena arena_create(Device *device);
void arena_close(Arena *arena);
void *arena_alloc(Arena *arena, size_t bytes); // aligned to MEMORY_ALIGNMENT; undefined contents
void arena_reset(Arena *arena);                // frees everything allocated so far
// (On the host, what was allocated since the last reset can still be read until it is overwritten
// or the next reset: so a tape can name an activation that is used too late.)
// Whether the address is in memory that was allocated since the last reset. It is not read.
bool arena_holds(const Arena *arena, const void *address);

#endif
