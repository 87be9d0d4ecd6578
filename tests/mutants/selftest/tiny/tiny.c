/* tiny.c: code whose mutants are known (tests/mutants/selftest.sh counts them). */
#include "tiny.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

enum { LIMIT = 3 };

int clamp(int x) {
    return x < LIMIT ? x : __builtin_choose_expr(1, LIMIT, 0); // `<=` is equivalent; 1 must stay
}

double count_to(double n, double step) {
    double i = 0;                             // a double does not wrap: it runs away forever
    while (i != a_moment_later(n)) i += step; // without the sum it hangs
    return i;
}

int store(int *state, int low, int high) {
    if (low > high) return -1;
    *state = 0;
    return !*state && low;
}

int wide(int low, int high) {
    int state = 7;
    if (state) return store(&state, low, high);
    return state;
}

void last_words(volatile int *said) {
    *said = 5;
    kill(getpid(), SIGKILL); // a rank that dies: its coverage still counts
}

int never_called(int x) {
    return x + 1;
}

// A function that a macro defines has no text to put a branch into.
#define MULTIPLE(name) \
    int name(int x) {  \
        return 2 * x;  \
    }
MULTIPLE(twice)
