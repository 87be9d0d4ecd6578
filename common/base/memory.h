/* memory.h: the heap, for objects that live longer than a step. When memory is exhausted, the
 * program ends with one line, because no caller could continue. (Tensors: device/device.h.)
 */
#ifndef COMMON_BASE_MEMORY_H
#define COMMON_BASE_MEMORY_H

#include <stddef.h>

#include "common/base/cache_line.h"

enum { MEMORY_ALIGNMENT = CACHE_LINE }; // bytes; also enough for one AVX-512 register

void *memory_zalloc(size_t bytes);                        // zeroed; never NULL; free() it
void *memory_grow(void *old, size_t count, size_t bytes); // realloc to count items of bytes each
char *memory_format(const char *format, ...)              // a new string; free() it
    __attribute__((format(printf, 1, 2)));

// Rounds up to a multiple of MEMORY_ALIGNMENT.
static inline size_t memory_whole_lines(size_t bytes) {
    return (bytes + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
}

#endif
