/* arena.h: memory of a device, or of the host, for one step. Allocation moves a pointer; everything
 * is given back at once by arena_reset, which keeps the memory for the next step. A training step
 * asks for the same sizes in the same order every time, so after the first step the device is never
 * asked again.
 */
#ifndef COMMON_DEVICE_ARENA_H
#define COMMON_DEVICE_ARENA_H

#include <stddef.h>

#include "common/device/device.h"

typedef struct ArenaBlock ArenaBlock;

typedef struct Arena {
    Device *device; // NULL: the host
    ArenaBlock *first, *current;
} Arena;

Arena arena_create(Device *device);
void arena_close(Arena *arena);
void *arena_alloc(Arena *arena, size_t bytes); // aligned to MEMORY_ALIGNMENT; undefined contents
void arena_reset(Arena *arena);                // everything allocated so far is gone

#endif
