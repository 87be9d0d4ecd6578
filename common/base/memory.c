/* memory.c: the heap. Every function returns memory, never NULL, or ends the program with one line.
 * Zeroed memory is aligned to a cache line, as a SyncWord requires. Allocations have exactly the
 * requested size, so AddressSanitizer detects every overrun.
 */
#include "common/base/memory.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "common/base/error.h"

static _Noreturn void out_of_memory(size_t count, size_t bytes) {
    fprintf(stderr, "error: out of memory: %zu x %zu bytes asked for\n", count, bytes);
    process_end(STATUS_FAILED);
}

void *memory_zalloc(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, MEMORY_ALIGNMENT, bytes ? bytes : 1) != 0) out_of_memory(1, bytes);
    return memset(memory, 0, bytes);
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
