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
    ArenaBlock *old; // host blocks that the last reset retired; the next reset frees them
} Arena;

Arena arena_create(Device *device);
void arena_close(Arena *arena);
void *arena_alloc(Arena *arena, size_t bytes); // aligned to MEMORY_ALIGNMENT; undefined contents
// Frees everything allocated so far. Host memory stays readable, until the arena reuses it or the
// next reset: so a tape can name an activation that is used after its tape_reset.
void arena_reset(Arena *arena);
// Whether the address is in memory that was allocated since the last reset. It is not read.
bool arena_holds(const Arena *arena, const void *address);

#endif
