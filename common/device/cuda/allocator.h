/* allocator.h: a caching allocator of device memory (a small version of PyTorch's).
 *
 * Allocating from the driver waits for the device, so freed blocks are returned to the driver only
 * at the end. A freed block is kept in a list, and the next request that fits reuses it at once,
 * because a single stream uses the memory, in order. Requests are rounded up; a small request
 * splits a larger block, and adjacent free pieces are merged.
 *
 * The source of memory is a table of functions, so the tests of this file need no GPU.
 */
#ifndef COMMON_DEVICE_CUDA_ALLOCATOR_H
#define COMMON_DEVICE_CUDA_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct CudaAllocator CudaAllocator;

typedef struct CudaMemorySource {
    void *(*take)(void *context, size_t bytes); // aligned to 512; NULL: out of memory
    void (*give_back)(void *context, void *memory);
    void *context;
} CudaMemorySource;

CudaAllocator *cuda_allocator_create(CudaMemorySource source);
void cuda_allocator_close(CudaAllocator *allocator); // returns all blocks; NULL is fine
// Returns memory aligned to 512; NULL if the source is out of memory, also after the unused blocks
// were returned to it.
void *cuda_allocator_take(CudaAllocator *allocator, size_t bytes);
// CHECKs that the memory was taken and not given back yet.
void cuda_allocator_give_back(CudaAllocator *allocator, void *memory);
size_t cuda_allocator_reserved(const CudaAllocator *allocator); // bytes taken from the source

#endif
