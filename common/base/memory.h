/* memory.h: the heap, for what lives longer than a step. Running out of it ends the program with
 * one line: no caller could do better. (Tensors live in a Device's memory: device/device.h.)
 */
#ifndef COMMON_BASE_MEMORY_H
#define COMMON_BASE_MEMORY_H

#include <stddef.h>

enum { MEMORY_ALIGNMENT = 64 }; // bytes: a cache line, and one AVX-512 register

void *memory_zalloc(size_t bytes);                        // zeroed; never NULL; free() it
void *memory_grow(void *old, size_t count, size_t bytes); // realloc to count items of bytes each
char *memory_format(const char *format, ...)              // a new string; free() it
    __attribute__((format(printf, 1, 2)));

#endif
