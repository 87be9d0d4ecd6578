/* captured.h: captures stderr, or stdout, of this process and its children as text. */
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
    FILE *file, *stream;
    int before; // the stream's file
} Captured;

static int captures; // begun and not ended

static inline Captured captured_begin_of(FILE *stream) {
    captures++;
    fflush(stream);
    Captured captured = {tmpfile(), stream, dup(fileno(stream))};
    assert_non_null(captured.file);
    assert_true(captured.before >= 0);
    assert_true(dup2(fileno(captured.file), fileno(stream)) >= 0);
    return captured;
}

static inline Captured captured_begin(void) {
    return captured_begin_of(stderr);
}

// Ends the capture and returns the text, which the caller frees.
static inline char *captured_end(Captured *captured) {
    enum { LONGEST = 1 << 14 };
    char *text = memory_zalloc(LONGEST);
    captures--;
    fflush(captured->stream);
    assert_true(dup2(captured->before, fileno(captured->stream)) >= 0);
    close(captured->before);
    assert_true(pread(fileno(captured->file), text, LONGEST - 1, 0) >= 0);
    fclose(captured->file);
    return text;
}

#endif
