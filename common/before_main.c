/* before_main.c: the set-up of every program of this project before main. It is linked into
 * programs, not into the libraries: a user's program sets its own signals and limits.
 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/device/cpu/blas_memory.h"

// A write past the limit of file sizes (ulimit -f) fails with EFBIG, which is reported with the
// file's name (file_cause). The ranks inherit that from ddprun.
__attribute__((constructor)) static void ignore_file_size_signal(void) {
    signal(SIGXFSZ, SIG_IGN);
}

// ---- OpenBLAS under a limit of address space (blas_memory.h) ------------------------------------
// A shared library's constructors run before those of the program that needs it. Functions in
// the program's .preinit_array run before both.

// A sanitizer allows no limit of address space, and starts after this function.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// NULL in a program that needs no OpenBLAS (ddprun): the linker has left the library out.
void cblas_sgemm(void) __attribute__((weak));

// OpenBLAS's number of threads: the value of the first variable that is set, in OpenBLAS's order;
// 0: none is set. Not by getenv, because it may not be ready yet.
static size_t threads_asked(char **environment) {
    static const char *const names[] = {
        "OPENBLAS_NUM_THREADS=", "GOTO_NUM_THREADS=", "OMP_NUM_THREADS="};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (char **entry = environment; *entry; entry++) {
            if (strncmp(*entry, names[n], strlen(names[n])) != 0) continue;
            long value = strtol(*entry + strlen(names[n]), NULL, 10);
            if (value > 0) return (size_t)value;
        }
    }
    return 0;
}

static void before_main(int argc, char **argv, char **environment) {
    Error err = {0};
    cpu_set_t cores;
    (void)argc;
    (void)argv;
    size_t threads = threads_asked(environment), most = 1;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) most = (size_t)CPU_COUNT(&cores);
    if (threads == 0 || threads > most) threads = most;
    if (cblas_sgemm) must_do(blas_memory_check(threads, &err), &err);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **,
                                                                            char **) = before_main;

#endif
