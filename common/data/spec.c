/* spec.c: numbers and words in the names of generated data sets. */
#include "common/data/spec.h"

#include <string.h>

#include "common/base/format.h"

bool spec_number(const char **at, size_t *number) {
    uint64_t value;
    if (!format_read_number(at, 999999999, &value)) return false;
    *number = (size_t)value;
    return value > 0;
}

bool spec_skip(const char **at, const char *word) {
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0) return false;
    *at += length;
    return true;
}
