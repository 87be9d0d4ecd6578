/* allocator.c: the books of allocator.h.
 *
 * One list holds all blocks. The blocks of one piece of the source's memory ("segment") follow each
 * other in the order of their addresses and cover it without a gap; `opens` marks the first of
 * them. Two neighbours of a segment are never both free: they would have been merged.
 *
 * Small and large requests live in segments of their own kind, so that a small tensor that stays
 * never cuts a large block in two. The sizes are PyTorch's.
 *
 * The list is walked from its start: a training step takes no memory, and a model has hundreds of
 * tensors, not millions.
 */
#include "common/device/cuda/allocator.h"

#include <stdint.h>
#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/memory.h"

enum {
    GRANULE = 512,            // every block's address and size are multiples of it
    MOST_SMALL = 1 << 20,     // a request of at most this is small
    SMALL_SEGMENT = 2 << 20,  // what the source is asked for when a small one finds no block
    LARGE_SEGMENT = 20 << 20, // and when a large one below LEAST_OWN does
    LEAST_OWN = 10 << 20,     // from here on a request has a segment to itself, of a multiple of
    OWN_ROUNDED = 2 << 20,    // this
};

typedef struct Block Block;
struct Block {
    Block *previous, *next;
    char *memory;
    size_t bytes;
    bool opens; // the first of a segment
    bool large; // of a segment for large requests
    bool taken;
};

struct CudaAllocator {
    CudaMemorySource source;
    Block *blocks;
    size_t reserved;
};

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

CudaAllocator *cuda_allocator_create(CudaMemorySource source) {
    CudaAllocator *allocator = memory_zalloc(sizeof *allocator);
    allocator->source = source;
    return allocator;
}

size_t cuda_allocator_reserved(const CudaAllocator *allocator) {
    return allocator->reserved;
}

static void link_after(CudaAllocator *allocator, Block *block, Block *previous) {
    block->previous = previous;
    block->next = previous ? previous->next : allocator->blocks;
    if (block->next) block->next->previous = block;
    if (previous)
        previous->next = block;
    else
        allocator->blocks = block;
}

static void unlink_and_free(CudaAllocator *allocator, Block *block) {
    if (block->next) block->next->previous = block->previous;
    if (block->previous)
        block->previous->next = block->next;
    else
        allocator->blocks = block->next;
    free(block);
}

// The smallest free block of the right kind that is large enough; NULL if there is none.
static Block *find_best(const CudaAllocator *allocator, size_t bytes) {
    bool large = bytes > MOST_SMALL;
    Block *best = NULL;
    for (Block *block = allocator->blocks; block; block = block->next) {
        if (block->taken || block->large != large || block->bytes < bytes) continue;
        if (!best || block->bytes < best->bytes) best = block;
    }
    return best;
}

static void give_back_segments(CudaAllocator *allocator, bool taken_too) {
    Block *next;
    for (Block *block = allocator->blocks; block; block = next) {
        next = block->next;
        bool whole = block->opens && (!next || next->opens);
        if (!taken_too && (block->taken || !whole)) continue;
        if (block->opens) allocator->source.give_back(allocator->source.context, block->memory);
        allocator->reserved -= block->bytes;
        unlink_and_free(allocator, block);
    }
}

static Block *take_segment(CudaAllocator *allocator, size_t bytes) {
    size_t segment = bytes <= MOST_SMALL ? SMALL_SEGMENT
                     : bytes < LEAST_OWN ? LARGE_SEGMENT
                                         : round_up(bytes, OWN_ROUNDED);
    const CudaMemorySource *source = &allocator->source;
    void *memory = source->take(source->context, segment);
    if (!memory) {
        give_back_segments(allocator, false);
        memory = source->take(source->context, segment);
    }
    if (!memory) return NULL;

    CHECK((uintptr_t)memory % GRANULE == 0, "the source's memory begins at %p", memory);
    allocator->reserved += segment;
    Block *block = memory_zalloc(sizeof *block);
    block->memory = memory;
    block->bytes = segment;
    block->opens = true;
    block->large = bytes > MOST_SMALL;
    link_after(allocator, block, NULL);
    return block;
}

// Splits off the rest of the block, unless it is too small for any request.
static void split(CudaAllocator *allocator, Block *block, size_t bytes) {
    size_t rest = block->bytes - bytes;
    if (rest == 0 || (block->large && rest <= MOST_SMALL)) return;
    Block *remainder = memory_zalloc(sizeof *remainder);
    remainder->memory = block->memory + bytes;
    remainder->bytes = rest;
    remainder->large = block->large;
    block->bytes = bytes;
    link_after(allocator, remainder, block);
}

void *cuda_allocator_take(CudaAllocator *allocator, size_t bytes) {
    if (bytes > SIZE_MAX - OWN_ROUNDED) return NULL; // could not be rounded up
    size_t wanted = round_up(bytes > 0 ? bytes : 1, GRANULE);
    Block *block = find_best(allocator, wanted);
    if (!block) block = take_segment(allocator, wanted);
    if (!block) return NULL;
    split(allocator, block, wanted);
    block->taken = true;
    return block->memory;
}

// Makes one of two neighbours, if both are free and of one segment. Either may be NULL.
static void merge(CudaAllocator *allocator, Block *block, Block *next) {
    if (!block || !next || next->opens || block->taken || next->taken) return;
    block->bytes += next->bytes;
    unlink_and_free(allocator, next);
}

void cuda_allocator_give_back(CudaAllocator *allocator, void *memory) {
    Block *block = allocator->blocks;
    while (block && (!block->taken || block->memory != memory)) block = block->next;
    CHECK(block, "%p was given back, and nobody has it", memory);
    block->taken = false;
    merge(allocator, block, block->next);
    merge(allocator, block->previous, block);
}

void cuda_allocator_close(CudaAllocator *allocator) {
    if (!allocator) return;
    give_back_segments(allocator, true);
    free(allocator);
}
