/* spec.c: the names of generated data, "synthetic:3x32x32->10@2048" and "shapes:32x32". */
#include <string.h>

#include "common/base/format.h"
#include "common/data/formats.h"

static bool read_size(const char **at, size_t *size) {
    uint64_t value;
    if (!format_read_number(at, 999999999, &value)) return false;
    *size = (size_t)value;
    return value > 0;
}

// Moves *at past the word and returns true if *at begins with it.
static bool skip(const char **at, const char *word) {
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0) return false;
    *at += length;
    return true;
}

bool spec_parse(const char *name, const char *fallback, size_t count, DataSpec *spec) {
    const char *colon = strchr(name, ':'), *at = colon ? colon + 1 : fallback;
    *spec = (DataSpec){.side = {1, 1, 1}, .count = count};
    do {
        if (spec->sides == 3 || !read_size(&at, &spec->side[spec->sides++])) return false;
    } while (skip(&at, "x"));
    // ":" is accepted for "->", which a shell reads as a redirection.
    if ((skip(&at, ":") || skip(&at, "->")) && !read_size(&at, &spec->outputs)) return false;
    if (skip(&at, "@") && !read_size(&at, &spec->count)) return false;
    return *at == '\0';
}
