/* peak_memory.h: measures the peak memory of a function in a child process.
 *
 * The measure is the peak of the resident set, which does not depend on the machine's speed. A
 * sanitizer's bookkeeping counts too: limits need a margin.
 */
#ifndef TESTS_RIGS_PEAK_MEMORY_H
#define TESTS_RIGS_PEAK_MEMORY_H

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/rigs/check.h"

static inline long peak_memory_now(void) { // MiB
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

// Runs body(argument) in a child, which must return 0; fails the test if the child's peak grows by
// more than `limit` MiB.
static inline void assert_peak_below(long limit, int (*body)(const char *), const char *argument) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        long before = peak_memory_now();
        if (body(argument) != 0) _exit(255);
        long grown = peak_memory_now() - before;
        _exit(grown > limit ? 1 : 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status)) fail_msg("the child died of signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == 1) fail_msg("it took more than %ld MiB", limit);
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
