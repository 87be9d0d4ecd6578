/* error.c: recording, extending and printing an Error, and how a process ends early.
 *
 * Invariant: once err->status is not STATUS_OK, the message is one line and is never replaced, only
 * prefixed. Control characters (a newline in the name of a file or of a tensor) become '?', so that
 * a hostile name cannot forge a second line or send escape sequences to the terminal.
 */
#include "common/base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static void make_one_line(char *text) {
    for (; *text; text++) {
        const unsigned char *c = (unsigned char *)text;
        if (*c < ' ' || *c == 127) *text = '?';
        if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) text[0] = text[1] = '?'; // U+0080 to U+009F
    }
}

static void record(Error *err, int status, const char *format, va_list args) {
    CHECK(status != STATUS_OK, "an error needs an exit status (message: %s)", format);
    if (!err || err->status != STATUS_OK) return;
    vsnprintf(err->message, sizeof err->message, format, args);
    make_one_line(err->message);
    err->status = status;
}

int error_set(Error *err, int status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    record(err, status, format, args);
    va_end(args);
    return -1;
}

void *error_null(Error *err, int status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    record(err, status, format, args);
    va_end(args);
    return NULL;
}

int error_prefix(Error *err, const char *format, ...) {
    if (!err || err->status == STATUS_OK) return -1;
    char text[2 * sizeof err->message + 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof err->message, format, args);
    va_end(args);
    strcat(text, ": ");
    strcat(text, err->message);
    make_one_line(text);
    text[sizeof err->message - 1] = '\0';
    strcpy(err->message, text);
    return -1;
}

void process_end(int status) {
    bool written = fflush(NULL) == 0 && !ferror(stdout);
    _exit(status == STATUS_OK && !written ? STATUS_FAILED : status);
}

void error_exit(const Error *err) {
    fflush(stdout);
    fprintf(stderr, "error: %s\n", err->message);
    process_end(err->status != STATUS_OK ? err->status : STATUS_FAILED);
}

void check_failed(const char *file, int line, const char *condition, const char *format, ...) {
    // One write, so that lines of ranks that fail together are not interleaved.
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: CHECK(%s) failed: %s\n", file, line, condition, text);
    abort();
}
