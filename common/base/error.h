/* error.h: the two kinds of failure.
 *
 *           when                                         effect
 *   Error   input or environment: a broken file, a bad   the function fills the caller's Error and
 *           option, a dead peer, a wrong shape           returns -1 or NULL; no partial result
 *   CHECK   a bug in this program or in its caller       prints the condition and aborts
 *
 * An Error keeps its first message, because the first cause explains the later ones.
 */
#ifndef COMMON_BASE_ERROR_H
#define COMMON_BASE_ERROR_H

#include <stdio.h>
#include <stdlib.h>

enum {
    STATUS_OK = 0,       // done
    STATUS_FAILED = 1,   // a check did not hold, or training failed
    STATUS_USAGE = 2,    // bad options or bad input
    STATUS_SKIPPED = 77, // the requested hardware or software is missing
};

typedef struct Error {
    int status; // STATUS_OK: no error; otherwise the exit status
    char message[1024];
} Error;

// Records status and a message of one line, formatted as by printf, unless *err has an error
// already. err may be NULL: no effect. Always returns -1, so that a function can end with
// `return error_set(err, STATUS_USAGE, "...")`.
int error_set(Error *err, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Like error_set, for functions that return a pointer: always returns NULL.
void *error_null(Error *err, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Prepends "text: " to the recorded message: a caller adds its context. Returns -1.
int error_prefix(Error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Flushes all streams (if that fails, STATUS_OK becomes STATUS_FAILED), then ends the process by
// _exit. The system frees memory, threads and files, so no _close is needed before. Only for an
// early end: a program that completes closes what it opened and returns from main.
void process_end(int status) __attribute__((noreturn));

// Prints "error: message" on stderr and ends the process (process_end) with the error's status.
void error_exit(const Error *err) __attribute__((noreturn));

// For programs, which end when a call fails. Both return the call's result; if it is NULL
// (must_get) or below 0 (must_do), they call error_exit.
//     Device *device = must_get(device_open("cpu:0", &err), &err);
static inline void *must_get(void *result, const Error *err) {
    if (!result) error_exit(err);
    return result;
}
static inline int must_do(int result, const Error *err) {
    if (result < 0) error_exit(err);
    return result;
}

// Prints the condition and the message, which names the violated rule and the values, and aborts if
// the condition is false.
#define CHECK(condition, ...)                                                        \
    do {                                                                             \
        if (!(condition)) check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)

void check_failed(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

#endif
