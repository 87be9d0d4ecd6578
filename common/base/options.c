/* options.c: command lines: reading argv by the program's table.
 *
 * Invariant: a value is stored only after it was read completely and found in range, so after an
 * error every option holds its default or a good value. --help is looked for before anything is
 * stored, because the table prints the defaults from where the values stand.
 * How --help looks is in options_help.c, what is said about a name that nobody knows in
 * options_meant.c.
 */
#include "common/base/options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LENGTH = 48 };

// Are `length` characters of `given` this name, with '_' read as '-'?
static bool same_name(const char *name, const char *given, size_t length) {
    if (strlen(name) != length) return false;
    for (size_t i = 0; i < length; i++) {
        if (name[i] != (given[i] == '_' ? '-' : given[i])) return false;
    }
    return true;
}

static const Option *find_option(const Options *options, const char *given, size_t length) {
    for (size_t i = 0; i < options->count; i++) {
        const Option *option = &options->table[i];
        if (option->type != OPTION_TITLE && same_name(option->name, given, length)) return option;
    }
    return NULL;
}

void options_add(Options *options, Option row) {
    size_t capacity = sizeof options->table / sizeof options->table[0];
    CHECK(options->count < capacity, "more than %zu options", capacity);
    if (row.type != OPTION_TITLE) {
        size_t length = strlen(row.name);
        CHECK(length < NAME_MAX_LENGTH, "the option name %s is too long", row.name);
        CHECK(strcmp(row.name, "help") != 0, "--help is there already");
        CHECK(!find_option(options, row.name, length), "--%s is there already", row.name);
        CHECK(row.value, "--%s has nowhere to put its value", row.name);
    }
    options->table[options->count++] = row;
}

void options_add_title(Options *options, const char *title) {
    options_add(options, (Option){.type = OPTION_TITLE, .help = title});
}

void options_add_flag(Options *options, const char *name, bool *value, const char *help) {
    options_add(options, (Option){name, OPTION_FLAG, value, NULL, 0, 0, help});
}

void options_add_int(Options *options, const char *name, int *value, int min, int max,
                     const char *help) {
    options_add(options, (Option){name, OPTION_INT, value, "N", min, max, help});
}

void options_add_count(Options *options, const char *name, size_t *value, double min, double max,
                       const char *help) {
    options_add(options, (Option){name, OPTION_SIZE, value, "N", min, max, help});
}

void options_add_u64(Options *options, const char *name, uint64_t *value, const char *help) {
    options_add(options, (Option){name, OPTION_U64, value, "N", 0, 0, help});
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
    options_add(options, (Option){name, OPTION_STRING, value, metavar, 0, 0, help});
}

void options_add_choice(Options *options, const char *name, const char **value, const char *words,
                        const char *help) {
    options_add(options, (Option){name, OPTION_CHOICE, value, words, 0, 0, help});
}

void options_add_enum(Options *options, const char *name, void *value, const char *words,
                      const char *help) {
    options_add(options, (Option){name, OPTION_ENUM, value, words, 0, 0, help});
}

void options_metavar(Options *options, const char *metavar) {
    CHECK(options->count > 0, "there is no option yet");
    options->table[options->count - 1].metavar = metavar;
}

// ---- values -------------------------------------------------------------------------------------

static int out_of_range(const Option *option, const char *text, Error *err) {
    return error_set(err, STATUS_USAGE, "--%s: %s is out of range (%.15g to %.15g)", option->name,
                     text, option->min, option->max);
}

static bool in_range(const Option *option, double value) {
    return option->min == option->max || (value >= option->min && value <= option->max);
}

// Digits after an optional sign, and nothing else: strtoll alone would take " 7" and stop at "7x".
static bool is_whole(const char *text) {
    if (*text == '-' || *text == '+') text++;
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static int parse_int(const Option *option, const char *text, Error *err) {
    if (!is_whole(text))
        return error_set(err, STATUS_USAGE, "--%s: '%s' is not a whole number", option->name, text);
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno == ERANGE || value < INT_MIN || value > INT_MAX)
        return error_set(err, STATUS_USAGE, "--%s: %s is too large", option->name, text);
    if (!in_range(option, (double)value)) return out_of_range(option, text, err);
    *(int *)option->value = (int)value;
    return 0;
}

static int parse_unsigned(const Option *option, const char *text, Error *err) {
    if (!is_whole(text))
        return error_set(err, STATUS_USAGE, "--%s: '%s' is not a whole number", option->name, text);
    if (*text == '-') { // strtoull would wrap it around
        return error_set(err, STATUS_USAGE, "--%s: %s is negative", option->name, text);
    }
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    bool is_size = option->type == OPTION_SIZE;
    if (errno == ERANGE || value > (is_size ? SIZE_MAX : UINT64_MAX))
        return error_set(err, STATUS_USAGE, "--%s: %s is too large", option->name, text);
    if (!in_range(option, (double)value)) return out_of_range(option, text, err);
    if (is_size)
        *(size_t *)option->value = (size_t)value;
    else
        *(uint64_t *)option->value = value;
    return 0;
}

// Reads one of the numbers of `text`: it begins at *at and ends at the character `mark`. Moves *at
// behind that mark.
static int read_float(const Option *option, const char *text, const char **at, char mark,
                      double *value, Error *err) {
    char *end;
    *value = strtod(*at, &end);
    if (end == *at || *end != mark || isspace((unsigned char)**at))
        return error_set(err, STATUS_USAGE, "--%s: '%s' is not %s", option->name, text,
                         option->type == OPTION_PAIR ? "two numbers like 0.9,0.999" : "a number");
    if (!isfinite(*value))
        return error_set(err, STATUS_USAGE, "--%s: %s is not a finite number", option->name, text);
    *at = end + 1;
    return in_range(option, *value) ? 0 : out_of_range(option, text, err);
}

static int parse_float(const Option *option, const char *text, Error *err) {
    const char *at = text;
    double value;
    if (read_float(option, text, &at, '\0', &value, err) != 0) return -1;
    *(double *)option->value = value;
    return 0;
}

static int parse_pair(const Option *option, const char *text, Error *err) {
    const char *at = text;
    double first, second, *place = option->value;
    if (read_float(option, text, &at, ',', &first, err) != 0) return -1;
    if (read_float(option, text, &at, '\0', &second, err) != 0) return -1;
    place[0] = first;
    place[1] = second;
    return 0;
}

// ---- words --------------------------------------------------------------------------------------

typedef struct Word { // of "a|b|c"
    const char *start;
    int length, number;
} Word;

// Moves `word` on to the next of the words; {0} moves to the first. Returns false after the last.
static bool next_word(const char *words, Word *word) {
    const char *start = word->start ? word->start + word->length : words;
    if (word->start && *start == '\0') return false;
    word->number = word->start ? word->number + 1 : 0;
    word->start = start + (*start == '|');
    word->length = (int)strcspn(word->start, "|");
    return true;
}

const char *option_text(const Option *option, char *buffer, size_t capacity) {
    if (option->type != OPTION_ENUM) return *(const char *const *)option->value;
    buffer[0] = '\0';
    for (Word word = {0}; next_word(option->metavar, &word);)
        if (word.number == *(const int *)option->value)
            snprintf(buffer, capacity, "%.*s", word.length, word.start);
    return buffer;
}

static bool is_word(const Word *word, const char *text) {
    size_t length = strlen(text);
    return (size_t)word->length == length && strncmp(word->start, text, length) == 0;
}

bool options_has_word(const char *words, const char *text) {
    for (Word word = {0}; next_word(words, &word);)
        if (is_word(&word, text)) return true;
    return false;
}

static int parse_word(const Option *option, const char *text, Error *err) {
    for (Word word = {0}; next_word(option->metavar, &word);) {
        if (!is_word(&word, text)) continue;
        if (option->type == OPTION_ENUM)
            *(int *)option->value = word.number;
        else
            *(const char **)option->value = text;
        return 0;
    }
    return options_refuse_choice(option, text, err);
}

static int parse_value(const Option *option, const char *text, Error *err) {
    switch (option->type) {
    case OPTION_INT:
        return parse_int(option, text, err);
    case OPTION_SIZE:
    case OPTION_U64:
        return parse_unsigned(option, text, err);
    case OPTION_FLOAT:
        return parse_float(option, text, err);
    case OPTION_PAIR:
        return parse_pair(option, text, err);
    case OPTION_CHOICE:
    case OPTION_ENUM:
        return parse_word(option, text, err);
    case OPTION_STRING:
        *(const char **)option->value = text;
        return 0;
    case OPTION_FLAG:
    case OPTION_TITLE:
        break;
    }
    CHECK(false, "--%s takes no value", option->name);
}

// ---- arguments ----------------------------------------------------------------------------------

typedef struct Argument {
    bool is_option, ends_options; // ends_options: it is "--"
    const Option *option;         // NULL if nobody knows it
    const char *value;            // NULL if there is none
    int taken;                    // how many of argv this is: 1, or 2 with a value that follows
} Argument;

// "-" alone is an argument (by custom, standard input); a value that starts with "--" is taken for
// a forgotten value and the next option, unless it is written --name=value.
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

// Whether `what`, "--help" or "--help=man", stands where an option may stand.
static bool asks_for(const char *what, const Options *options, int argc, char **argv) {
    for (int i = 1; i < argc;) {
        Argument a = next_argument(options, argc, argv, i);
        if (a.ends_options || (options->takes_command && !a.is_option)) return false;
        if (strcmp(argv[i], what) == 0) return true;
        i += a.taken;
    }
    return false;
}

static int parse_option(Options *options, const Argument *a, const char *text, Error *err) {
    if (!a->option) return options_refuse_name(options, text, err);
    const char *name = a->option->name;
    options->given[a->option - options->table] = true;
    if (a->option->type == OPTION_FLAG) {
        if (a->value) return error_set(err, STATUS_USAGE, "--%s takes no value", name);
        *(bool *)a->option->value = true;
        return 0;
    }
    if (!a->value)
        return error_set(err, STATUS_USAGE, "--%s needs a value (%s)", name, a->option->metavar);
    return parse_value(a->option, a->value, err);
}

static int add_positional(Options *options, const char *text, Error *err) {
    if (options->positional_count >= options->positional_max)
        return error_set(err, STATUS_USAGE, "unexpected argument '%s' (--help lists the options)",
                         text);
    options->positional[options->positional_count++] = text;
    return 0;
}

int options_parse(Options *options, int argc, char **argv, Error *err) {
    const bool man = asks_for("--help=man", options, argc, argv);
    if (man || asks_for("--help", options, argc, argv)) {
        if (man)
            options_print_man(options, stdout);
        else
            options_print_help(options, stdout);
        if (fflush(stdout) == 0 && !ferror(stdout)) process_end(STATUS_OK);
        return error_set(err, STATUS_FAILED, "cannot write the help: %s", strerror(errno));
    }
    memset(options->given, 0, sizeof options->given);
    options->positional_count = 0;
    options->rest = argc;
    bool options_end = false; // seen "--"
    for (int i = 1; i < argc;) {
        Argument a = next_argument(options, argc, argv, i);
        if (a.is_option && !options_end) {
            if (parse_option(options, &a, argv[i], err) != 0) return -1;
            i += a.taken;
            continue;
        }
        bool is_dashes = a.ends_options && !options_end;
        if (options->takes_command) {
            options->rest = is_dashes ? i + 1 : i;
            return 0;
        }
        if (is_dashes)
            options_end = true;
        else if (add_positional(options, argv[i], err) != 0)
            return -1;
        i++;
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
        const Option *option = options_find(options, uses[i].name);
        CHECK(option, "there is no --%s", uses[i].name);
        if (options->given[option - options->table] && !uses[i].used)
            return error_set(err, STATUS_USAGE, "--%s has no effect: %s", option->name,
                             uses[i].why);
    }
    return 0;
}
