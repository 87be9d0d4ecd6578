/* arena.c: a chain of blocks that grows in the first step. A reset that finds several replaces them
 * by one that holds all that was used, so from then on an allocation is an addition, and steps of
 * other shapes (a short last batch, an evaluation) share the memory instead of adding to it.
 */
#include "common/device/arena.h"

#include "common/base/memory.h"

struct ArenaBlock {
    ArenaBlock *next;
    unsigned char *memory; // [capacity], the device's
    size_t capacity, used;
};

enum { SMALLEST_BLOCK = 64 * 1024 };

Arena arena_create(Device *device) {
    return (Arena){.device = device};
}

static void free_blocks(const Arena *arena, ArenaBlock *block) {
    for (ArenaBlock *next; block; block = next) {
        next = block->next;
        if (arena->device)
            device_free(arena->device, block->memory, block->capacity);
        else
            free(block->memory);
        free(block);
    }
}

void arena_close(Arena *arena) {
    if (!arena) return;
    free_blocks(arena, arena->first);
    free_blocks(arena, arena->old);
    arena->first = arena->current = arena->old = NULL;
}

// Activations of a large network are large: blocks of just the size asked for waste nothing; small
// requests share a block.
static void append_block(Arena *arena, size_t bytes) {
    ArenaBlock *block = memory_zalloc(sizeof *block);
    block->capacity = bytes > SMALLEST_BLOCK ? bytes : SMALLEST_BLOCK;
    block->memory = arena->device ? device_alloc(arena->device, block->capacity)
                                  : memory_zalloc(block->capacity);
    if (arena->current)
        arena->current->next = block;
    else
        arena->first = block;
    arena->current = block;
}

void *arena_alloc(Arena *arena, size_t bytes) {
    size_t need = memory_whole_lines(bytes > 0 ? bytes : 1); // no two allocations share an address
    if (!arena->current || arena->current->capacity - arena->current->used < need)
        append_block(arena, need);
    ArenaBlock *block = arena->current;
    void *memory = block->memory + block->used;
    block->used += need;
    return memory;
}

void arena_reset(Arena *arena) {
    size_t used = 0;
    for (ArenaBlock *block = arena->first; block; block = block->next) used += block->used;
    free_blocks(arena, arena->old);
    arena->old = NULL;
    if (arena->first && arena->first->next) {
        if (arena->device)
            free_blocks(arena, arena->first);
        else
            arena->old = arena->first;
        arena->first = arena->current = NULL;
        append_block(arena, used);
    }
    if (arena->first) arena->first->used = 0;
    arena->current = arena->first;
}

bool arena_holds(const Arena *arena, const void *address) {
    const uintptr_t at = (uintptr_t)address;
    for (const ArenaBlock *block = arena->first; block; block = block->next)
        if (at - (uintptr_t)block->memory < block->used) return true;
    return false;
}
