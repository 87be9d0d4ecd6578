/* spec.h: parsing the names of generated data sets, "synthetic:3x32x32:10@2048". */
#ifndef COMMON_DATA_SPEC_H
#define COMMON_DATA_SPEC_H

#include <stdbool.h>
#include <stddef.h>

// Parses a number from 1 to 999,999,999 at *at and moves *at past it.
bool spec_number(const char **at, size_t *number);
// Moves *at past the word and returns true if *at begins with it.
bool spec_skip(const char **at, const char *word);

#endif
