/* format.h: numbers and lists in strings: appending, reading, quoting, plurals. */
#ifndef COMMON_BASE_FORMAT_H
#define COMMON_BASE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Appends to the string in text[capacity], as printf formats; text beyond the capacity is cut off.
// Returns whether all of it fit.
bool format_append(char *text, size_t capacity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// A bad value for a message: its first 80 bytes, and "…" for the rest.
typedef struct Quote {
    char text[84];
} Quote;
Quote format_quote(const char *value);

// The fewest digits, at least 15, that read back as the same number: "0.1", not "0.1000...01".
typedef struct NumberText {
    char text[32];
} NumberText;
NumberText format_number(double value);

// Reads a number from 0 to `most`, digits only, at *at and moves *at past it. Returns false if
// there is none or it is larger.
bool format_read_number(const char **at, uint64_t most, uint64_t *number);
// Moves *at past the comma between two entries of a list. Returns false if *at is neither that nor
// the list's end.
bool format_read_comma(const char **at);

bool format_ends_with(const char *text, const char *end); // and is longer

// The plural's s: "%zu rank%s", count, format_s(count).
static inline const char *format_s(size_t count) {
    return count == 1 ? "" : "s";
}

#endif
