/* spec.c: numbers and words in the names of made-up data sets. */
#include "common/data/spec.h"

#include <string.h>

bool spec_number(const char **at, size_t *number) {
    *number = 0;
    size_t digits = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++, digits++) {
        if (digits == 9) return false;
        *number = *number * 10 + (size_t)(**at - '0');
    }
    return digits > 0 && *number > 0;
}

bool spec_skip(const char **at, const char *word) {
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0) return false;
    *at += length;
    return true;
}
