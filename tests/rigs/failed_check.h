/* failed_check.h: asserts that a caller's mistake ends the process by a CHECK that names it. */
#ifndef TESTS_RIGS_FAILED_CHECK_H
#define TESTS_RIGS_FAILED_CHECK_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/rigs/captured.h"
#include "tests/rigs/check.h"

// Runs body(context) in a child, which must abort with a message that contains `says`. Not under
// ThreadSanitizer, which does not support threads in a forked child.
static inline void expect_failed_check(void (*body)(void *context), void *context,
                                       const char *says) {
    int status = 0;
    Captured captured = captured_begin();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); // cmocka handles it
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        body(context);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    char *printed = captured_end(&captured);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(printed, says))
        fail_msg("not a failed CHECK with '%s': status %d, '%s'", says, status, printed);
    free(printed);
}

#endif
