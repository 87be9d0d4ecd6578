/* options_help.c: what --help prints, from the same table that parses.
 *
 * Two columns, "--name METAVAR" and the help text, wrapped at 100 columns; a row whose left column
 * is too long puts its text on the next line. Defaults are read from where the values stand, so the
 * caller prints before anything is stored there.
 */

#include <stdint.h>
#include <string.h>

#include "common/base/options.h"

enum { PAGE_COLUMNS = 100, LEFT_MAX = 34 };

// "  --name METAVAR" into text; returns its length.
static size_t format_left(const Option *option, char *text, size_t capacity) {
    bool valued = option->type != OPTION_FLAG && option->metavar;
    snprintf(text, capacity, "  --%s%s%s", option->name, valued ? " " : "",
             valued ? option->metavar : "");
    return strlen(text);
}

// The default as " (default: 0.1)" into text; nothing for a flag, a missing string, or "".
static void format_default(const Option *option, char *text, size_t capacity) {
    text[0] = '\0';
    switch (option->type) {
    case OPTION_INT:
        snprintf(text, capacity, " (default: %d)", *(const int *)option->value);
        break;
    case OPTION_SIZE:
        snprintf(text, capacity, " (default: %zu)", *(const size_t *)option->value);
        break;
    case OPTION_U64:
        snprintf(text, capacity, " (default: %llu)",
                 (unsigned long long)*(const uint64_t *)option->value);
        break;
    case OPTION_FLOAT:
        snprintf(text, capacity, " (default: %.10g)", *(const double *)option->value);
        break;
    case OPTION_PAIR: {
        const double *pair = option->value;
        snprintf(text, capacity, " (default: %.10g,%.10g)", pair[0], pair[1]);
        break;
    }
    case OPTION_STRING:
    case OPTION_CHOICE:
    case OPTION_ENUM: {
        char word[64];
        const char *value = option_text(option, word, sizeof word);
        if (value && *value) snprintf(text, capacity, " (default: %s)", value);
        break;
    }
    case OPTION_FLAG:
    case OPTION_TITLE:
        break;
    }
}

// Prints text word by word from column `indent`, where the line already stands.
static void print_wrapped(FILE *stream, const char *text, size_t indent) {
    size_t column = indent;
    while (*text) {
        size_t spaces = strspn(text, " "), length = strcspn(text + spaces, " ");
        if (length == 0) return;
        if (column > indent && column + 1 + length > PAGE_COLUMNS) {
            fprintf(stream, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', stream);
            column++;
        }
        fprintf(stream, "%.*s", (int)length, text + spaces);
        column += length;
        text += spaces + length;
    }
}

static void print_row(FILE *stream, const Option *option, size_t indent) {
    char left[256], fallback[300], text[1200];
    size_t length = format_left(option, left, sizeof left);
    fputs(left, stream);
    if (length + 2 > indent) {
        fprintf(stream, "\n%*s", (int)indent, "");
    } else {
        fprintf(stream, "%*s", (int)(indent - length), "");
    }
    format_default(option, fallback, sizeof fallback);
    snprintf(text, sizeof text, "%s%s", option->help ? option->help : "", fallback);
    print_wrapped(stream, text, indent);
    fputc('\n', stream);
}

static void print_usage(FILE *stream, const Options *options) {
    fprintf(stream, "usage: %s [options]", options->program);
    for (int i = 0; i < options->positional_max; i++) fprintf(stream, " %c", 'A' + i);
    fputs(options->takes_command ? " COMMAND [ARGUMENT ...]\n" : "\n", stream);
}

void options_print_help(const Options *options, FILE *stream) {
    static const Option help = {.name = "help", .type = OPTION_FLAG, .help = "print this and end"};
    size_t indent = 0;
    for (size_t i = 0; i < options->count; i++) {
        char left[256];
        if (options->table[i].type == OPTION_TITLE) continue;
        size_t length = format_left(&options->table[i], left, sizeof left) + 2;
        if (length > indent && length <= LEFT_MAX) indent = length;
    }
    if (indent < 10) indent = 10;

    print_usage(stream, options);
    if (options->summary) fprintf(stream, "\n%s\n", options->summary);
    if (options->count == 0 || options->table[0].type != OPTION_TITLE) fputc('\n', stream);
    for (size_t i = 0; i < options->count; i++) {
        const Option *option = &options->table[i];
        if (option->type == OPTION_TITLE) {
            fprintf(stream, "\n%s:\n", option->help);
        } else {
            print_row(stream, option, indent);
        }
    }
    print_row(stream, &help, indent);
}
