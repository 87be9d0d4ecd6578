/* options_alike.c: the options that must be equal on all ranks, as text (train_config.h). */
#include <string.h>

#include "common/base/format.h"
#include "common/base/hash.h"
#include "common/train/train_config.h"

enum {
    VALUE_MAX = 80
}; // characters of a value; a longer value is truncated and ends with its hash

// Whether the option names a file that only rank 0 reads or writes: names may differ by node.
static bool is_of_one_rank(const char *name) {
    const char *const NAMES[] = {"out", "save", "trace", "dump-grads", "save-init", "load-init"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(name, NAMES[i]) == 0) return true;
    return false;
}

static void write_text(const char *value, char text[VALUE_MAX]) {
    size_t length = strlen(value);
    snprintf(text, VALUE_MAX, "%s", length > 0 ? value : "''");
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ') *at = '?'; // each option is one line
    if (length >= VALUE_MAX)
        snprintf(text + VALUE_MAX - 13, 13, "...#%08x",
                 (unsigned)hash_bytes(HASH_START, value, length));
}

void train_options_alike(const Options *options, char *text, size_t capacity) {
    char buffer[VALUE_MAX], value[VALUE_MAX];
    bool fits = true;
    text[0] = '\0';
    for (size_t i = 0; i < options->count; i++) {
        const Option *option = &options->table[i];
        if (option->type == OPTION_TITLE || is_of_one_rank(option->name)) continue;
        const char *given = option_text(option, buffer, sizeof buffer);
        write_text(given ? given : "not given", value);
        fits = format_append(text, capacity, "--%s %s\n", option->name, value) && fits;
    }
    CHECK(fits, "the options' text needs more than %zu bytes", capacity);
}
