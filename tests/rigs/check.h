/* check.h: cmocka and comparisons. NaN never passes. */
#ifndef TESTS_RIGS_CHECK_H
#define TESTS_RIGS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/error.h"

// Fails with the error's message.
#define CHECK_OK(expression, err)                                          \
    do {                                                                   \
        if (!(expression)) fail_msg("%s: %s", #expression, (err).message); \
    } while (0)

// Asserts |a - b| <= tolerance * (1 + |b|), both finite.
static inline void check_close(double a, double b, double tolerance, const char *what) {
    if (!(fabs(a - b) <= tolerance * (1 + fabs(b))))
        fail_msg("%s: %.9g differs from %.9g by %.3g", what, a, b, fabs(a - b));
}

// Asserts that the error's message contains `fragment`.
static inline void check_message(const Error *err, const char *fragment) {
    if (!strstr(err->message, fragment)) fail_msg("expected \"%s\" in: %s", fragment, err->message);
}

#endif
