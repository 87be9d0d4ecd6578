/* options_help.c: what --help and --help=man print, from the same table that parses.
 *
 * Two columns, "--name METAVAR" and the help text, wrapped at 100 columns; a row whose left column
 * is too long puts its text on the next line. Defaults are read from where the values stand, so the
 * caller prints before anything is stored there. The manual page is roff's source, with one
 * paragraph for each option; what it says of exit statuses, the environment and examples stands in
 * common/man.
 */

#include <stdint.h>
#include <string.h>

#include "common/base/options.h"

enum { PAGE_COLUMNS = 100, LEFT_MAX = 34 };

static const Option HELP = {.name = "help", .type = OPTION_FLAG, .help = "print this and end"};

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
    if (length + 2 > indent)
        fprintf(stream, "\n%*s", (int)indent, "");
    else
        fprintf(stream, "%*s", (int)(indent - length), "");
    format_default(option, fallback, sizeof fallback);
    snprintf(text, sizeof text, "%s%s", option->help ? option->help : "", fallback);
    print_wrapped(stream, text, indent);
    fputc('\n', stream);
}

static const char *command_of(const Options *options) {
    return options->command ? options->command : "COMMAND [ARGUMENT ...]";
}

static void print_usage(FILE *stream, const Options *options) {
    fprintf(stream, "usage: %s [options]", options->program);
    for (int i = 0; i < options->positional_max; i++) fprintf(stream, " %c", 'A' + i);
    if (options->takes_command) fprintf(stream, " %s", command_of(options));
    fputc('\n', stream);
}

void options_print_help(const Options *options, FILE *stream) {
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
        if (option->type == OPTION_TITLE)
            fprintf(stream, "\n%s:\n", option->help);
        else
            print_row(stream, option, indent);
    }
    print_row(stream, &HELP, indent);
}

// ---- the manual page ----------------------------------------------------------------------------

// Prints text for roff, to which a backslash, a dash, and a dot or quote that begins a line are
// commands.
static void print_roff(FILE *stream, const char *text) {
    for (const char *at = text; *at; at++) {
        if ((*at == '.' || *at == '\'') && (at == text || at[-1] == '\n')) fputs("\\&", stream);
        if (*at == '\\')
            fputs("\\e", stream);
        else if (*at == '-')
            fputs("\\-", stream);
        else
            fputc(*at, stream);
    }
}

static void print_roff_option(FILE *stream, const Option *option) {
    char fallback[300];
    fputs(".TP\n\\fB\\-\\-", stream);
    print_roff(stream, option->name);
    fputs("\\fR", stream);
    if (option->type != OPTION_FLAG && option->metavar) {
        fputs(" \\fI", stream);
        print_roff(stream, option->metavar);
        fputs("\\fR", stream);
    }
    fputc('\n', stream);
    print_roff(stream, option->help);
    format_default(option, fallback, sizeof fallback);
    print_roff(stream, fallback);
    fputc('\n', stream);
}

// The summary's first line, without its full stop, names the program; the others are kept as they
// are.
static void print_roff_summary(FILE *stream, const Options *options) {
    const char *summary = options->summary ? options->summary : "";
    char first[200];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(summary, ".\n"), summary);
    fprintf(stream, ".TH \"%s\" 1 \"\" \"ddp.c\" \"ddp.c\"\n", options->program);
    fputs(".nh\n.ad l\n.SH NAME\n", stream); // no hyphens and no wide blanks: values can be copied
    print_roff(stream, options->program);
    fputs(" \\- ", stream);
    print_roff(stream, first);
    fputs("\n.SH SYNOPSIS\n.B ", stream);
    print_roff(stream, options->program);
    fputs("\n[\\fIoptions\\fR]", stream);
    for (int i = 0; i < options->positional_max; i++) fprintf(stream, " \\fI%c\\fR", 'A' + i);
    if (options->takes_command) fprintf(stream, " \\fI%s\\fR", command_of(options));
    fputc('\n', stream);
    fputs(".SH DESCRIPTION\n.nf\n", stream);
    print_roff(stream, summary);
    fputs("\n.fi\n.SH OPTIONS\n", stream);
}

void options_print_man(const Options *options, FILE *stream) {
    print_roff_summary(stream, options);
    for (size_t i = 0; i < options->count; i++) {
        const Option *option = &options->table[i];
        if (option->type == OPTION_TITLE) {
            fputs(".SS ", stream);
            print_roff(stream, option->help);
            fputc('\n', stream);
        } else {
            print_roff_option(stream, option);
        }
    }
    fputs(".SS Help\n", stream);
    print_roff_option(stream, &HELP);
    fputs(".TP\n\\fB\\-\\-help=man\\fR\nprint this page, as roff's source, and end\n", stream);
}
