/* options.h: command lines. A program describes its options in one table; the table parses the
 * command line, checks ranges, and prints --help, so the three cannot disagree. Unknown options,
 * missing values, values out of range and left-over arguments are errors (STATUS_USAGE) that name
 * the option and, where one is near, the option that was probably meant.
 *
 * Spellings understood: --name value, --name=value; a flag is --name alone. An underscore in a
 * name is read as a dash, as torchrun does (--nproc_per_node).
 */
#ifndef COMMON_BASE_OPTIONS_H
#define COMMON_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

typedef enum OptionType {
    OPTION_FLAG,   // bool *value, set to true
    OPTION_INT,    // int *value
    OPTION_SIZE,   // size_t *value, decimal
    OPTION_U64,    // uint64_t *value
    OPTION_FLOAT,  // double *value; must be finite
    OPTION_STRING, // const char **value; points into argv
    OPTION_CHOICE, // const char **value; one of the words of `choices`, separated by '|'
    OPTION_TITLE,  // no option: `help` is a heading in --help
} OptionType;

typedef struct Option {
    const char *name; // without the dashes
    OptionType type;
    void *value;         // where the default stands before parsing, and the value after
    const char *metavar; // shown in --help ("N", "FILE"); for a choice the words, "a|b|c"
    double min, max;     // inclusive range of numbers; min == max means unlimited
    const char *help;
} Option;

typedef struct Options {
    const char *program;
    const char *summary; // the first lines of --help: what the program does, and an example
    Option table[96];
    bool given[96]; // the last options_parse met the option, default or not
    size_t count;
    // Where options end and a command begins (ddprun): if true, parsing stops at the first
    // argument that is not an option, and `rest` is its index in argv (argc if there is none).
    bool takes_command;
    // How many arguments that are not options are allowed (compare_tensors A B): 0 to 4.
    int positional_max;
    const char *positional[4];
    int positional_count;
    int rest;
} Options;

// Appends one row to the table. Aborts if it is full or if a name comes twice.
void options_add(Options *options, Option row);

// Parses argv. --help prints the table on stdout and ends the process with status 0. Returns 0,
// or -1 with err filled.
int options_parse(Options *options, int argc, char **argv, Error *err);

// An option that others can leave without any effect.
typedef struct OptionUse {
    const char *name;
    bool used;       // would it change anything?
    const char *why; // not, if it would not
} OptionUse;

// Somebody who gives an option expects something of it. Returns 0 if every option of `uses` that
// was given has an effect, or -1 with err filled: "--NAME has no effect: WHY". Defaults never
// count.
int options_check_used(const Options *options, const OptionUse *uses, size_t count, Error *err);

// Whether the last options_parse met the option, at its default or not. False if there is none.
bool options_given(const Options *options, const char *name);

// The word that an option (OPTION_CHOICE, OPTION_STRING) of the table stands at.
const char *options_word(const Options *options, const char *name);

void options_print_help(const Options *options, FILE *stream);

#endif
