/* allocator.h: device memory that is kept and handed out again (PyTorch's caching allocator,
 * in the small).
 *
 * Taking memory from the driver waits for the device, so nothing is given back to it before the
 * end: a block that is freed goes to a list, and the next request that fits takes it, without any
 * waiting, because the one stream that uses the memory works in order. Requests are rounded up; a
 * small one takes a piece of a larger block, and pieces that are free again grow together.
 *
 * This file only keeps the books: where memory comes from is a function, so its tests need no GPU.
 */
#ifndef COMMON_DEVICE_CUDA_ALLOCATOR_H
#define COMMON_DEVICE_CUDA_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct CudaAllocator CudaAllocator;

typedef struct CudaMemorySource {
    void *(*take)(void *context, size_t bytes); // aligned to 512; NULL: there is no more
    void (*give_back)(void *context, void *memory);
    void *context;
} CudaMemorySource;

CudaAllocator *cuda_allocator_create(CudaMemorySource source);
void cuda_allocator_close(CudaAllocator *allocator); // gives everything back; NULL is fine
// Aligned to 512. NULL if the source has no more even after the unused blocks were given back.
void *cuda_allocator_take(CudaAllocator *allocator, size_t bytes);
// CHECKs that the memory was taken and not given back yet.
void cuda_allocator_give_back(CudaAllocator *allocator, void *memory);
size_t cuda_allocator_reserved(const CudaAllocator *allocator); // bytes taken from the source

#endif
