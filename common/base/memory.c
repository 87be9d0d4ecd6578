/* memory.c: the heap. Every function returns memory or ends the program with one line; the caller
 * never sees NULL. Zeroed memory starts on a cache line, so it can
 * hold a SyncWord, which must start on one.
 */
#include "common/base/memory.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"

static _Noreturn void out_of_memory(size_t count, size_t bytes) {
    fprintf(stderr, "error: out of memory: %zu x %zu bytes asked for\n", count, bytes);
    process_end(STATUS_FAILED);
}

void *memory_zalloc(size_t bytes) {
    if (bytes > SIZE_MAX - (size_t)2 * MEMORY_ALIGNMENT) out_of_memory(1, bytes);
    size_t lines = bytes / MEMORY_ALIGNMENT + 1; // aligned_alloc wants whole multiples, and not 0
    void *memory = aligned_alloc(MEMORY_ALIGNMENT, lines * MEMORY_ALIGNMENT);
    if (!memory) out_of_memory(1, bytes);
    return memset(memory, 0, lines * MEMORY_ALIGNMENT);
}

void *memory_grow(void *old, size_t count, size_t bytes) {
    if (bytes != 0 && count > SIZE_MAX / bytes) out_of_memory(count, bytes);
    size_t total = count * bytes;
    void *memory = realloc(old, total ? total : 1); // realloc to 0 would free
    if (!memory) out_of_memory(count, bytes);
    return memory;
}

char *memory_format(const char *format, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0) out_of_memory(1, strlen(format));
    return text;
}
