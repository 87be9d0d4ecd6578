/* zeros_behind.h: zeros follow each array of memory_zalloc (WRAP memory_zalloc): a loop beyond an
 * array's end reads a rank 0, a color 0 or an address of no memory.
 */
#ifndef TESTS_RIGS_ZEROS_BEHIND_H
#define TESTS_RIGS_ZEROS_BEHIND_H

#include "common/base/memory.h"

void *__real_memory_zalloc(size_t bytes);
void *__wrap_memory_zalloc(size_t bytes);

void *__wrap_memory_zalloc(size_t bytes) {
    return __real_memory_zalloc(bytes + MEMORY_ALIGNMENT);
}

#endif
