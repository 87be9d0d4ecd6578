/* arena.c: a chain of blocks, walked from the first after each reset. A block that is too small for
 * what is asked is passed over, and the same sequence of requests passes over the same ones. */
#include "common/device/arena.h"

#include <stdint.h>

#include "common/base/memory.h"

struct ArenaBlock {
    ArenaBlock *next;
    unsigned char *memory; // [capacity], the device's
    size_t capacity, used;
};

enum { SMALLEST_BLOCK = 64 * 1024 };

static size_t aligned(size_t bytes) {
    return (bytes + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
}

Arena arena_create(Device *device) {
    return (Arena){.device = device};
}

void arena_close(Arena *arena) {
    for (ArenaBlock *block = arena->first, *next; block; block = next) {
        next = block->next;
        device_free(arena->device, block->memory, block->capacity);
        free(block);
    }
    arena->first = arena->current = NULL;
}

// Appends a block after the current one. Activations of a large network are large: blocks of just
// the size asked for waste nothing; small requests share a block.
static ArenaBlock *append_block(Arena *arena, size_t bytes) {
    ArenaBlock *block = memory_zalloc(sizeof *block);
    block->capacity = bytes > SMALLEST_BLOCK ? bytes : SMALLEST_BLOCK;
    block->memory = device_alloc(arena->device, block->capacity);
    if (arena->current) {
        block->next = arena->current->next;
        arena->current->next = block;
    } else {
        arena->first = block;
    }
    return block;
}

void *arena_alloc(Arena *arena, size_t bytes) {
    size_t need = aligned(bytes > 0 ? bytes : 1); // no two allocations share an address
    ArenaBlock *block = arena->current;
    while (block && block->capacity - block->used < need) {
        block = block->next;
        if (block) arena->current = block;
    }
    if (!block) arena->current = block = append_block(arena, need);
    void *memory = block->memory + block->used;
    block->used += need;
    return memory;
}

void arena_reset(Arena *arena) {
    for (ArenaBlock *block = arena->first; block; block = block->next) block->used = 0;
    arena->current = arena->first;
}
