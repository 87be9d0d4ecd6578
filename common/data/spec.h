/* spec.h: reading the names of made-up data sets, "synthetic:3x32x32:10@2048", piece by piece. */
#ifndef COMMON_DATA_SPEC_H
#define COMMON_DATA_SPEC_H

#include <stdbool.h>
#include <stddef.h>

// Reads a number from 1 to 999,999,999 at *at and moves *at behind it.
bool spec_number(const char **at, size_t *number);
// Moves *at behind the word if it stands there.
bool spec_skip(const char **at, const char *word);

#endif
