/* error.h: the two ways in which things go wrong.
 *
 * What may happen (a broken file, a bad option, a dead peer, a shape that does not fit) is an
 * Error: the function that met it fills the caller's Error and returns -1 (or NULL), and nothing
 * is half done. What must never happen whatever the input is a CHECK: it prints and aborts.
 *
 * An Error keeps the first message it is given: the first cause is the one worth reading.
 */
#ifndef COMMON_BASE_ERROR_H
#define COMMON_BASE_ERROR_H

#include <stdio.h>
#include <stdlib.h>

enum {
    STATUS_OK = 0,       // done
    STATUS_FAILED = 1,   // a check did not hold, or training failed
    STATUS_USAGE = 2,    // bad options or bad input
    STATUS_SKIPPED = 77, // the hardware or software asked for is not here
};

typedef struct Error {
    int status; // STATUS_OK while nothing went wrong; otherwise the exit status to end with
    char message[1024];
} Error;

// Records the first error: status and a message of one line, formatted as by printf. Later calls
// change nothing. err may be NULL (then nothing is recorded). Always returns -1, so that a
// function can end with `return error_set(err, STATUS_USAGE, "...")`.
int error_set(Error *err, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Puts "text: " in front of the recorded message, as an error travels up. Returns -1.
int error_prefix(Error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Ends the process in the middle of its work: writes out what its streams hold (if that fails,
// STATUS_OK becomes STATUS_FAILED), then leaves at once, as _exit does. Its memory, its threads and
// its files go back to the system, and nothing has to be closed before. A program that has come to
// its end closes what it opened and returns from main.
void process_end(int status) __attribute__((noreturn));

// Prints "error: message" on stderr and ends the process (process_end) with the error's status.
void error_exit(const Error *err) __attribute__((noreturn));

// For programs, which can do nothing but end when a call fails. Both return what the call has
// returned; if that is NULL (must_get) or below 0 (must_do), they end the process as error_exit
// does.
//     Device *device = must_get(device_open("cpu:0", &err), &err);
static inline void *must_get(void *result, const Error *err) {
    if (!result) error_exit(err);
    return result;
}
static inline int must_do(int result, const Error *err) {
    if (result < 0) error_exit(err);
    return result;
}

// Aborts unless the condition holds, which must be so for the program to make sense. The text says
// what is wrong and with which values.
#define CHECK(condition, ...)                                                        \
    do {                                                                             \
        if (!(condition)) check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)

void check_failed(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

#endif
