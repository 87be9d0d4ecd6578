/* captured.h: captures stderr of this process and its children as text. */
#ifndef TESTS_RIGS_CAPTURED_H
#define TESTS_RIGS_CAPTURED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/memory.h"

typedef struct Captured {
    FILE *file;
    int stderr_before;
} Captured;

static int captures; // begun and not ended

static inline Captured captured_begin(void) {
    captures++;
    fflush(stderr);
    Captured captured = {tmpfile(), dup(STDERR_FILENO)};
    assert_non_null(captured.file);
    assert_true(captured.stderr_before >= 0);
    assert_true(dup2(fileno(captured.file), STDERR_FILENO) >= 0);
    return captured;
}

// Ends the capture and returns the text, which the caller frees.
static inline char *captured_end(Captured *captured) {
    enum { LONGEST = 4096 };
    char *text = memory_zalloc(LONGEST);
    captures--;
    fflush(stderr);
    assert_true(dup2(captured->stderr_before, STDERR_FILENO) >= 0);
    close(captured->stderr_before);
    assert_true(pread(fileno(captured->file), text, LONGEST - 1, 0) >= 0);
    fclose(captured->file);
    return text;
}

#endif
