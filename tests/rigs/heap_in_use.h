/* heap_in_use.h: a body that frees all memory that it allocates, in any thread.
 *
 * A first run may allocate for all later ones: a pool, caches of the C library, which fill up in a
 * few runs. So the body is repeated until a run leaves nothing allocated. It runs once where its
 * output is captured, and under a sanitizer: ASan finds leaks itself.
 */
#ifndef TESTS_RIGS_HEAP_IN_USE_H
#define TESTS_RIGS_HEAP_IN_USE_H

#include <malloc.h>
#include <stdbool.h>

#include "tests/rigs/captured.h"
#include "tests/rigs/sanitizers.h"

enum { HEAP_RUNS = 20 };

typedef struct HeapRuns {
    int runs;
    size_t before, left; // bytes in use before the last run; how many more after it
} HeapRuns;

// while (heap_run(&runs)) body(); then a leak is runs.left > 0.
static inline bool heap_run(HeapRuns *runs) {
    const struct mallinfo2 info = mallinfo2();
    const bool once = UNDER_ASAN || UNDER_TSAN || captures > 0;
    const size_t now = once ? 0 : info.uordblks + info.hblkhd;
    runs->left = runs->runs > 0 && now > runs->before ? now - runs->before : 0;
    runs->before = now;
    return runs->runs++ == 0 || (runs->left > 0 && runs->runs <= HEAP_RUNS);
}

#endif
