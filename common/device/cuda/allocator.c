/* allocator.c: the blocks of allocator.h.
 *
 * One list holds all blocks. The blocks of one piece of the source's memory ("segment") are
 * consecutive, in the order of their addresses, and cover the segment without a gap; `opens` marks
 * its first block. Invariant: two neighbours of a segment are never both free, because they are
 * merged.
 *
 * Small and large requests have separate segments, so that a long-lived small tensor never splits a
 * large block. The sizes are PyTorch's.
 *
 * Every search is linear: a training step allocates nothing, and a model has hundreds of tensors,
 * not millions.
 */
#include "common/device/cuda/allocator.h"

#include <stdint.h>
#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/memory.h"

enum {
    GRANULE = 512,            // every block's address and size are multiples of it
    MOST_SMALL = 1 << 20,     // a request of at most this is small
    SMALL_SEGMENT = 2 << 20,  // size of a segment for small requests
    LARGE_SEGMENT = 20 << 20, // size of a segment for large requests below LEAST_OWN
    LEAST_OWN = 10 << 20,     // a request from this size on has its own segment, a multiple of
    OWN_ROUNDED = 2 << 20,    // this
};

typedef struct Block Block;
struct Block {
    Block *next;
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

// A free block, inserted at *link.
static Block *insert_block(Block **link, char *memory, size_t bytes, bool large) {
    Block *block = memory_zalloc(sizeof *block);
    block->next = *link;
    block->memory = memory;
    block->bytes = bytes;
    block->large = large;
    return *link = block;
}

static void remove_block(Block **link) {
    Block *block = *link;
    *link = block->next;
    free(block);
}

// The smallest sufficient free block of the request's kind (small or large); NULL if there is none.
static Block *find_best(const CudaAllocator *allocator, size_t bytes) {
    bool large = bytes > MOST_SMALL;
    Block *best = NULL;
    for (Block *block = allocator->blocks; block; block = block->next) {
        if (block->taken || block->large != large || block->bytes < bytes) continue;
        if (!best || block->bytes < best->bytes) best = block;
    }
    return best;
}

// Returns the free segments, or all of them, to the source.
static void give_back_segments(CudaAllocator *allocator, bool taken_too) {
    for (Block **link = &allocator->blocks; *link;) {
        const Block *block = *link;
        bool whole = block->opens && (!block->next || block->next->opens);
        if (!taken_too && (block->taken || !whole)) {
            link = &(*link)->next;
            continue;
        }
        if (block->opens) allocator->source.give_back(allocator->source.context, block->memory);
        allocator->reserved -= block->bytes;
        remove_block(link);
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
    Block *block = insert_block(&allocator->blocks, memory, segment, bytes > MOST_SMALL);
    block->opens = true;
    return block;
}

// Splits off the remainder of the block, unless it is too small for any request.
static void split(Block *block, size_t bytes) {
    size_t rest = block->bytes - bytes;
    if (rest == 0 || (block->large && rest <= MOST_SMALL)) return;
    insert_block(&block->next, block->memory + bytes, rest, block->large);
    block->bytes = bytes;
}

void *cuda_allocator_take(CudaAllocator *allocator, size_t bytes) {
    if (bytes > SIZE_MAX - OWN_ROUNDED) return NULL; // rounding up would overflow
    size_t wanted = round_up(bytes > 0 ? bytes : 1, GRANULE);
    Block *block = find_best(allocator, wanted);
    if (!block) block = take_segment(allocator, wanted);
    if (!block) return NULL;
    split(block, wanted);
    block->taken = true;
    return block->memory;
}

// Merges the block with its successor, if both are free and of one segment. block may be NULL.
static void merge(Block *block) {
    if (!block || !block->next || block->next->opens || block->taken || block->next->taken) return;
    block->bytes += block->next->bytes;
    remove_block(&block->next);
}

void cuda_allocator_give_back(CudaAllocator *allocator, void *memory) {
    Block *block = allocator->blocks, *previous = NULL;
    for (; block && (!block->taken || block->memory != memory); block = block->next)
        previous = block;
    CHECK(block, "%p was given back, but is not allocated", memory);
    block->taken = false;
    merge(block);
    merge(previous);
}

void cuda_allocator_close(CudaAllocator *allocator) {
    if (!allocator) return;
    give_back_segments(allocator, true);
    free(allocator);
}
