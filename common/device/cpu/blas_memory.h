/* blas_memory.h: the address space that OpenBLAS takes by itself.
 *
 * OpenBLAS maps one buffer for each of its threads before main begins, and later one for each
 * thread that calls it at the same time. It retries a mapping that fails forever, without a
 * message. So a limit of address space (ulimit -v) or data (ulimit -d) is checked before:
 *
 *   before_main.c          before OpenBLAS' constructor, in programs (not in the shared libraries)
 *   cpu_prepare (blas.c)   for each device
 *
 * Without a limit both do nothing.
 */
#ifndef COMMON_DEVICE_CPU_BLAS_MEMORY_H
#define COMMON_DEVICE_CPU_BLAS_MEMORY_H

#include "common/base/error.h"

// Returns 0 if the limit leaves room for `buffers` more, or -1 with err filled.
int blas_memory_check(size_t buffers, Error *err);

// Makes OpenBLAS map one buffer more than it has, which it keeps for its callers, and ends its own
// threads (openblas_set_num_threads starts new ones). Returns 0, or -1 with err filled and nothing
// mapped if the limit leaves no room.
int blas_memory_reserve(Error *err);

#endif
