/* options_help.c: the output of --help and --help=man, from the same table as the parser's.
 *
 * Two columns, "--name METAVAR" and the help text, wrapped at 100 columns; after a left column that
 * is too long, the text starts on the next line. Defaults are the values themselves, so --help is
 * printed before parsing. The manual page is roff source with one paragraph per option; exit
 * statuses, environment and examples are added from common/man.
 */

#include <string.h>

#include "common/base/options.h"

enum { PAGE_COLUMNS = 100, LEFT_MAX = 34 };

static const Option HELP = {.name = "help", .type = OPTION_FLAG, .help = "print this and end"};

// "  --name METAVAR" into text; returns its length.
static size_t format_left(const Option *option, char *text, size_t capacity) {
    bool valued = option->type != OPTION_FLAG && option->metavar;
    return (size_t)snprintf(text, capacity, "  --%s%s%s", option->name, valued ? " " : "",
                            valued ? option->metavar : "");
}

// The default as " (default: 0.1)" into text; nothing for a flag, a missing string, or "".
static void format_default(const Option *option, char *text, size_t capacity) {
    char buffer[64];
    const char *value =
        option->type == OPTION_FLAG ? NULL : option_text(option, buffer, sizeof buffer);
    text[0] = '\0';
    if (value && *value) snprintf(text, capacity, " (default: %s)", value);
}

// Prints text from column `indent` on, the current column, wrapped at words.
static void print_wrapped(FILE *stream, const char *text, size_t indent) {
    size_t column = indent;
    while (*text) {
        size_t spaces = strspn(text, " "), length = strcspn(text + spaces, " ");
        if (length == 0) return;
        bool first = column == indent, wraps = !first && column + 1 + length > PAGE_COLUMNS;
        if (wraps) fprintf(stream, "\n%*s", (int)indent, "");
        fprintf(stream, "%s%.*s", first || wraps ? "" : " ", (int)length, text + spaces);
        column = (wraps ? indent : column + !first) + length;
        text += spaces + length;
    }
}

static void print_row(FILE *stream, const Option *option, size_t indent) {
    char left[512], fallback[300], text[1200];
    size_t length = format_left(option, left, sizeof left);
    bool fits = length + 2 <= indent;
    fprintf(stream, "%s%s%*s", left, fits ? "" : "\n", (int)(fits ? indent - length : indent), "");
    format_default(option, fallback, sizeof fallback);
    snprintf(text, sizeof text, "%s%s", option->help, fallback);
    print_wrapped(stream, text, indent);
    fputc('\n', stream);
}

// Prints the arguments of the usage line, each between two strings.
static void print_arguments(FILE *stream, const Options *options, const char *before,
                            const char *after) {
    const char *command = options->command ? options->command : "COMMAND [ARGUMENT ...]";
    for (int i = 0; i < options->positional_max && !options->command; i++)
        fprintf(stream, " %s%c%s", before, 'A' + i, after);
    if (options->takes_command || options->command)
        fprintf(stream, " %s%s%s", before, command, after);
}

void options_print_help(const Options *options, FILE *stream) {
    size_t indent = 10;
    for (size_t i = 0; i < options->count; i++) {
        char left[512];
        if (options->table[i].type == OPTION_TITLE) continue;
        size_t length = format_left(&options->table[i], left, sizeof left) + 2;
        if (length > indent && length <= LEFT_MAX) indent = length;
    }

    fprintf(stream, "usage: %s [options]", options->program);
    print_arguments(stream, options, "", "");
    fputc('\n', stream);
    if (options->summary) fprintf(stream, "\n%s\n", options->summary);
    if (options->table[0].type != OPTION_TITLE) fputc('\n', stream);
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

// Prints `before`, then the text with roff's special characters escaped (backslash, dash, and a dot
// or quote at the beginning of a line), then `after`.
static void print_roff(FILE *stream, const char *before, const char *text, const char *after) {
    fputs(before, stream);
    for (const char *at = text; *at; at++) {
        if ((*at == '.' || *at == '\'') && (at == text || at[-1] == '\n')) fputs("\\&", stream);
        if (*at == '\\')
            fputs("\\e", stream);
        else if (*at == '-')
            fputs("\\-", stream);
        else
            fputc(*at, stream);
        if (*at == '|') fputs("\\:", stream); // a list of values may be broken here
    }
    fputs(after, stream);
}

static void print_roff_option(FILE *stream, const Option *option) {
    char fallback[300];
    print_roff(stream, ".TP\n\\fB\\-\\-", option->name, "\\fR");
    if (option->type != OPTION_FLAG && option->metavar)
        print_roff(stream, " \\fI", option->metavar, "\\fR");
    format_default(option, fallback, sizeof fallback);
    print_roff(stream, "\n", option->help, "");
    print_roff(stream, "", fallback, "\n");
}

// The summary's first line, without its full stop, is the NAME section's; DESCRIPTION has all
// lines, unfilled.
static void print_roff_summary(FILE *stream, const Options *options) {
    const char *summary = options->summary ? options->summary : "";
    char first[200];
    size_t length = strcspn(summary, "\n");
    if (length > 0 && summary[length - 1] == '.') length--;
    snprintf(first, sizeof first, "%.*s", (int)length, summary);
    fprintf(stream, ".TH \"%s\" 1 \"\" \"ddp.c\" \"ddp.c\"\n", options->program);
    // .nh, .ad l: no hyphenation and no justification, so that values can be copied.
    print_roff(stream, ".nh\n.ad l\n.SH NAME\n", options->program, " \\- ");
    print_roff(stream, "", first, "\n.SH SYNOPSIS\n.B ");
    print_roff(stream, "", options->program, "\n[\\fIoptions\\fR]");
    print_arguments(stream, options, "\\fI", "\\fR");
    print_roff(stream, "\n.SH DESCRIPTION\n.nf\n", summary, "\n.fi\n.SH OPTIONS\n");
}

void options_print_man(const Options *options, FILE *stream) {
    print_roff_summary(stream, options);
    for (size_t i = 0; i < options->count; i++) {
        const Option *option = &options->table[i];
        if (option->type == OPTION_TITLE)
            print_roff(stream, ".SS ", option->help, "\n");
        else
            print_roff_option(stream, option);
    }
    fputs(".SS Help\n", stream);
    print_roff_option(stream, &HELP);
    fputs(".TP\n\\fB\\-\\-help=man\\fR\nprint this page, as roff's source, and end\n", stream);
}
