/* main.c: the test of tiny.c. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tiny.h"

// So that a mutant which never ends waits, and does not compute.
double a_moment_later(double n) {
    usleep(1000);
    return n;
}

static int rank_dies(void) {
    volatile int *said =
        mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        last_words(said);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) && *said == 5;
}

int main(void) {
    int state = 1;
    int right = clamp(2) == 2 && clamp(5) == 3 && count_to(4, 2) == 4 && store(&state, 2, 2) == 1 &&
                state == 0 && store(&state, 0, 1) == 0 && store(&state, 3, 2) == -1 &&
                wide(1, 2) == 1 && twice(3) == 6 && rank_dies();
    return !right;
}
