/* format.h: texts that are built piece by piece in an array of the caller's. */
#ifndef COMMON_BASE_FORMAT_H
#define COMMON_BASE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

// Appends to a text of `capacity` bytes, its end included. What does not fit is cut off; returns
// whether all of it did.
bool format_append(char *text, size_t capacity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
