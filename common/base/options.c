/* options.c: command lines: reading argv by the program's table.
 *
 * Invariant: a value is stored only after it was parsed completely and found in range, so after an
 * error every option holds its default or a valid value. --help is searched for before any value is
 * stored, because it prints the values as the defaults.
 * options_help.c prints --help; options_meant.c makes suggestions for unknown names and values.
 */
#include "common/base/options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "common/base/format.h"

enum { NAME_MAX_LENGTH = 48 };

// The option whose name is given[length], with '_' read as '-'.
static const Option *find_option(const Options *options, const char *given, size_t length) {
    for (size_t i = 0; i < options->count; i++) {
        const Option *option = &options->table[i];
        size_t same = 0;
        if (option->type == OPTION_TITLE || strlen(option->name) != length) continue;
        while (same < length && option->name[same] == (given[same] == '_' ? '-' : given[same]))
            same++;
        if (same == length) return option;
    }
    return NULL;
}

void options_add(Options *options, Option row) {
    size_t capacity = sizeof options->table / sizeof options->table[0];
    CHECK(options->count < capacity, "more than %zu options", capacity);
    if (row.type != OPTION_TITLE) {
        size_t length = strlen(row.name);
        CHECK(length < NAME_MAX_LENGTH, "the option name %s is too long", row.name);
        CHECK(strcmp(row.name, "help") != 0, "--help is reserved");
        CHECK(!find_option(options, row.name, length), "--%s was added before", row.name);
        CHECK(row.value, "--%s: value is NULL", row.name);
    }
    options->table[options->count++] = row;
}

void options_add_title(Options *options, const char *title) {
    options_add(options, (Option){.type = OPTION_TITLE, .help = title});
}

void options_add_flag(Options *options, const char *name, bool *value, const char *help) {
    options_add(options, (Option){name, OPTION_FLAG, value, .help = help});
}

void options_add_int(Options *options, const char *name, int *value, int min, int max,
                     const char *help) {
    options_add(options, (Option){name, OPTION_INT, value, "N", min, max, help});
}

void options_add_count(Options *options, const char *name, size_t *value, double min, double max,
                       const char *help) {
    options_add(options, (Option){name, OPTION_SIZE, value, "N", min, max, help});
}

void options_add_float(Options *options, const char *name, double *value, double min, double max,
                       const char *help) {
    options_add(options, (Option){name, OPTION_FLOAT, value, "F", min, max, help});
}

void options_add_pair(Options *options, const char *name, double value[2], double min, double max,
                      const char *help) {
    options_add(options, (Option){name, OPTION_PAIR, value, "F,F", min, max, help});
}

void options_add_string(Options *options, const char *name, const char **value, const char *metavar,
                        const char *help) {
    options_add(options, (Option){name, OPTION_STRING, value, .metavar = metavar, .help = help});
}

void options_add_choice(Options *options, const char *name, const char **value, const char *words,
                        const char *help) {
    options_add(options, (Option){name, OPTION_CHOICE, value, .metavar = words, .help = help});
}

void options_add_enum(Options *options, const char *name, void *value, const char *words,
                      const char *help) {
    options_add(options, (Option){name, OPTION_ENUM, value, .metavar = words, .help = help});
}

void options_metavar(Options *options, const char *metavar) {
    CHECK(options->count > 0, "there is no option yet");
    options->table[options->count - 1].metavar = metavar;
}

// ---- values -------------------------------------------------------------------------------------

static int refuse(const Option *option, const char *text, const char *why, Error *err) {
    return error_set(err, STATUS_USAGE, "--%s: '%s' is %s", option->name, format_quote(text).text,
                     why);
}

static int check_range(const Option *option, const char *text, double value, Error *err) {
    char why[80];
    if (option->min == option->max || (value >= option->min && value <= option->max)) return 0;
    snprintf(why, sizeof why, "out of range (%.15g to %.15g)", option->min, option->max);
    return refuse(option, text, why, err);
}

// Only digits after an optional sign.
static int parse_whole(const Option *option, const char *text, Error *err) {
    const bool is_int = option->type == OPTION_INT, negative = *text == '-';
    const char *digits = text + (negative || *text == '+');
    if (!*digits || digits[strspn(digits, "0123456789")])
        return refuse(option, text, "not a whole number", err);
    if (negative && !is_int) return refuse(option, text, "negative", err);
    uint64_t value;
    if (!format_read_number(&digits, is_int ? INT_MAX : UINT64_MAX, &value))
        return refuse(option, text, "too large", err);
    if (check_range(option, text, negative ? -(double)value : (double)value, err) != 0) return -1;
    if (is_int)
        *(int *)option->value = negative ? -(int)value : (int)value;
    else
        *(size_t *)option->value = value;
    return 0;
}

static int parse_floats(const Option *option, const char *text, Error *err) {
    const int count = option->type == OPTION_PAIR ? 2 : 1;
    double values[2] = {0};
    const char *at = text;
    for (int i = 0; i < count; i++) {
        char *end;
        values[i] = strtod(at, &end);
        if (end == at || *end != (i + 1 < count ? ',' : '\0') || isspace((unsigned char)*at))
            return refuse(option, text,
                          count == 2 ? "not two numbers like 0.9,0.999" : "not a number", err);
        if (!isfinite(values[i])) return refuse(option, text, "not a finite number", err);
        if (check_range(option, text, values[i], err) != 0) return -1;
        at = end + 1;
    }
    memcpy(option->value, values, (size_t)count * sizeof *values);
    return 0;
}

// ---- words --------------------------------------------------------------------------------------

bool options_next_word(const char *words, OptionWord *word) {
    const char *start = word->start ? word->start + word->length : words;
    if (word->start && *start == '\0') return false;
    word->number = word->start ? word->number + 1 : 0;
    word->start = start + (*start == '|');
    word->length = (int)strcspn(word->start, "|");
    return true;
}

static bool is_word(const OptionWord *word, const char *text) {
    size_t length = strlen(text);
    return (size_t)word->length == length && strncmp(word->start, text, length) == 0;
}

bool options_has_word(const char *words, const char *text) {
    for (OptionWord word = {0}; options_next_word(words, &word);)
        if (is_word(&word, text)) return true;
    return false;
}

static int parse_word(const Option *option, const char *text, Error *err) {
    for (OptionWord word = {0}; options_next_word(option->metavar, &word);) {
        if (!is_word(&word, text)) continue;
        if (option->type == OPTION_ENUM)
            *(int *)option->value = word.number;
        else
            *(const char **)option->value = text;
        return 0;
    }
    return options_refuse_choice(option, text, err);
}

// ---- values of any type -------------------------------------------------------------------------

const char *option_text(const Option *option, char *buffer, size_t capacity) {
    const void *value = option->value;
    const double *floats = value;
    buffer[0] = '\0';
    switch (option->type) {
    case OPTION_FLAG:
        return *(const bool *)value ? "on" : "off";
    case OPTION_INT:
        snprintf(buffer, capacity, "%d", *(const int *)value);
        return buffer;
    case OPTION_SIZE:
        snprintf(buffer, capacity, "%zu", *(const size_t *)value);
        return buffer;
    case OPTION_FLOAT:
    case OPTION_PAIR:
        snprintf(buffer, capacity, "%s", format_number(floats[0]).text);
        if (option->type == OPTION_PAIR)
            format_append(buffer, capacity, ",%s", format_number(floats[1]).text);
        return buffer;
    case OPTION_ENUM:
        for (OptionWord word = {0}; options_next_word(option->metavar, &word);)
            if (word.number == *(const int *)value)
                snprintf(buffer, capacity, "%.*s", word.length, word.start);
        return buffer;
    case OPTION_STRING:
    case OPTION_CHOICE:
        return *(const char *const *)value;
    case OPTION_TITLE:
        break;
    }
    return NULL;
}

// ---- arguments ----------------------------------------------------------------------------------

typedef struct Argument {
    bool is_option, ends_options; // ends_options: "--"
    const Option *option;         // NULL: unknown
    const char *value;            // NULL: none
    int taken;                    // arguments consumed: 1, or 2 with a separate value
} Argument;

// "-" alone is an argument (by custom, standard input). Text that starts with "--" is the next
// option, not a value; --name=value passes such a value.
static Argument next_argument(const Options *options, int argc, char **argv, int i) {
    const char *text = argv[i];
    Argument a = {.taken = 1};
    a.ends_options = strcmp(text, "--") == 0;
    a.is_option = text[0] == '-' && text[1] != '\0' && !a.ends_options;
    if (!a.is_option || text[1] != '-') return a;
    size_t length = strcspn(text + 2, "=");
    a.option = find_option(options, text + 2, length);
    if (text[2 + length] == '=') {
        a.value = text + 2 + length + 1;
    } else if (a.option && a.option->type != OPTION_FLAG && i + 1 < argc &&
               strncmp(argv[i + 1], "--", 2) != 0) {
        a.value = argv[i + 1];
        a.taken = 2;
    }
    return a;
}

// "--help" or "--help=man", whichever is first among the options of argv; otherwise NULL.
static const char *find_help(const Options *options, int argc, char **argv) {
    for (int i = 1; i < argc;) {
        Argument a = next_argument(options, argc, argv, i);
        if (a.ends_options || (options->takes_command && !a.is_option)) return NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--help=man") == 0) return argv[i];
        i += a.taken;
    }
    return NULL;
}

static int parse_option(Options *options, const Argument *a, const char *text, Error *err) {
    const Option *option = a->option;
    if (!option) return options_refuse_name(options, text, err);
    options->given[option - options->table] = true;
    if (option->type == OPTION_FLAG && a->value)
        return error_set(err, STATUS_USAGE, "--%s takes no value", option->name);
    if (option->type != OPTION_FLAG && !a->value)
        return error_set(err, STATUS_USAGE, "--%s needs a value (%s)", option->name,
                         option->metavar);
    switch (option->type) {
    case OPTION_FLAG:
        *(bool *)option->value = true;
        return 0;
    case OPTION_INT:
    case OPTION_SIZE:
        return parse_whole(option, a->value, err);
    case OPTION_FLOAT:
    case OPTION_PAIR:
        return parse_floats(option, a->value, err);
    case OPTION_CHOICE:
    case OPTION_ENUM:
        return parse_word(option, a->value, err);
    case OPTION_STRING:
        *(const char **)option->value = a->value;
        return 0;
    case OPTION_TITLE:
        break;
    }
    CHECK(false, "--%s is a title", option->name);
}

int options_parse(Options *options, int argc, char **argv, Error *err) {
    const char *help = find_help(options, argc, argv);
    if (help) {
        (strcmp(help, "--help") == 0 ? options_print_help : options_print_man)(options, stdout);
        if (fflush(stdout) == 0 && !ferror(stdout)) process_end(STATUS_OK);
        return error_set(err, STATUS_FAILED, "cannot write the help: %s", strerror(errno));
    }
    memset(options->given, 0, sizeof options->given);
    options->positional_count = 0;
    options->rest = argc;
    bool options_end = false; // seen "--"
    for (int i = 1; i < argc;) {
        Argument a = next_argument(options, argc, argv, i);
        bool is_dashes = a.ends_options && !options_end;
        if (a.is_option && !options_end) {
            if (parse_option(options, &a, argv[i], err) != 0) return -1;
        } else if (options->takes_command) {
            options->rest = is_dashes ? i + 1 : i;
            return 0;
        } else if (is_dashes) {
            options_end = true;
        } else if (options->positional_count < options->positional_max) {
            options->positional[options->positional_count++] = argv[i];
        } else {
            return error_set(err, STATUS_USAGE,
                             "unexpected argument '%s' (--help lists the options)",
                             format_quote(argv[i]).text);
        }
        i += options_end ? 1 : a.taken; // after "--" an option's name is an argument
    }
    return 0;
}

const Option *options_find(const Options *options, const char *name) {
    return find_option(options, name, strlen(name));
}

bool options_is(const Options *options, const char *name, const char *word) {
    char buffer[64];
    const Option *option = options_find(options, name);
    CHECK(option && option->type >= OPTION_STRING && option->type <= OPTION_ENUM,
          "--%s has no words", name);
    const char *text = option_text(option, buffer, sizeof buffer);
    return text && strcmp(text, word) == 0;
}

bool options_given(const Options *options, const char *name) {
    const Option *option = options_find(options, name);
    return option && options->given[option - options->table];
}

int options_check_used(const Options *options, const OptionUse *uses, size_t count, Error *err) {
    for (size_t i = 0; i < count; i++) {
        for (OptionWord word = {0}; options_next_word(uses[i].name, &word);) {
            const Option *option = find_option(options, word.start, (size_t)word.length);
            CHECK(option, "there is no --%s", uses[i].name);
            if (options->given[option - options->table] && !uses[i].used)
                return error_set(err, STATUS_USAGE, "--%s has no effect: %s", option->name,
                                 uses[i].why);
        }
    }
    return 0;
}
