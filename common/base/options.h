/* options.h: command lines. A program adds its options to one table; the table parses the
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
#include <stdint.h>

#include "common/base/error.h"

typedef enum OptionType {
    OPTION_FLAG,   // bool *value, set to true
    OPTION_INT,    // int *value
    OPTION_SIZE,   // size_t *value, decimal
    OPTION_U64,    // uint64_t *value
    OPTION_FLOAT,  // double *value; must be finite
    OPTION_PAIR,   // double value[2]; written "0.9,0.999", both in the range
    OPTION_STRING, // const char **value; points into argv
    OPTION_CHOICE, // const char **value; one of the words of `metavar`, which '|' separates
    OPTION_ENUM,   // an enum whose constants are 0, 1, ... in the order of those words
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
    bool given[96]; // whether the last options_parse met the option, be it with its default
    size_t count;
    // Where options end and a command begins (ddprun): if true, parsing stops at the first
    // argument that is not an option, and `rest` is its index in argv (argc if there is none).
    bool takes_command;
    const char *command; // what --help calls it; NULL: "COMMAND [ARGUMENT ...]"
    // How many arguments that are not options are allowed (compare_tensors A B): 0 to 4.
    int positional_max;
    const char *positional[4];
    int positional_count;
    int rest;
} Options;

// Appends one row to the table. Aborts if it is full or if a name comes twice. Programs call the
// functions below, which know the type of the value.
void options_add(Options *options, Option row);

// Each appends an option called --name. What `value` points to holds the default, and must live as
// long as the table. Numbers outside [min, max] are refused; min == max means that all are taken.
void options_add_title(Options *options, const char *title); // a heading of --help
void options_add_flag(Options *options, const char *name, bool *value, const char *help);
void options_add_int(Options *options, const char *name, int *value, int min, int max,
                     const char *help);
void options_add_count(Options *options, const char *name, size_t *value, double min, double max,
                       const char *help);
void options_add_u64(Options *options, const char *name, uint64_t *value, const char *help);
void options_add_float(Options *options, const char *name, double *value, double min, double max,
                       const char *help);
void options_add_pair(Options *options, const char *name, double value[2], double min, double max,
                      const char *help);
// Any text. metavar stands for it in --help: "FILE".
void options_add_string(Options *options, const char *name, const char **value, const char *metavar,
                        const char *help);
// One of `words` ("a|b|c"), kept as the word, for names that go on as names (a model, a backend).
void options_add_choice(Options *options, const char *name, const char **value, const char *words,
                        const char *help);
// One of `words`, kept as its number: value points to an enum whose constants have the words'
// order.
void options_add_enum(Options *options, const char *name, void *value, const char *words,
                      const char *help);
// Changes what stands for the value in --help, N or F, for the option that was added last.
void options_metavar(Options *options, const char *metavar);

// Parses argv. --help prints the table on stdout and ends the process with status 0, --help=man
// prints it as a manual page; where it cannot be printed, that is an error. Returns 0, or -1 with
// err filled.
int options_parse(Options *options, int argc, char **argv, Error *err);

// An option that the values of other options can leave without effect.
typedef struct OptionUse {
    const char *name;
    bool used;       // would it change anything?
    const char *why; // if it would not: the reason, which ends the error's line
} OptionUse;

// Somebody who gives an option expects something of it. Returns 0 if every option of `uses` that
// was given has an effect, or -1 with err filled: "--NAME has no effect: WHY". An option that
// was not given is never an error.
int options_check_used(const Options *options, const OptionUse *uses, size_t count, Error *err);

// The option of this name; NULL if there is none.
const Option *options_find(const Options *options, const char *name);
// Whether the last options_parse met the option, at its default or not. False if there is none.
bool options_given(const Options *options, const char *name);
// Whether the value of an option with words is `word`.
bool options_is(const Options *options, const char *name, const char *word);
// The value of an option with a text or words, as text; NULL if it has none. A word that is kept as
// a number is written into buffer[capacity].
const char *option_text(const Option *option, char *buffer, size_t capacity);

// Whether `word` is one of the choices "a|b|c".
bool options_has_word(const char *words, const char *word);

void options_print_help(const Options *options, FILE *stream);
void options_print_man(const Options *options, FILE *stream); // roff, for man(1)

// What other programs call a thing that is named differently here.
typedef struct OptionSynonym {
    const char *given; // their name without the dashes in front; or "name=value"
    const char *meant; // our option's name, or its value; NULL: there is none
    // More to say, or NULL. If `meant` is NULL: what to do instead. If it begins with "--": how the
    // option is to be spelled.
    const char *why;
} OptionSynonym;

const OptionSynonym *options_synonyms(size_t *count); // in options_synonyms.c

// For the parser (options_meant.c): the error for an option that the table lacks, and for a value
// that is none of an option's choices. They name what was probably meant: by another program's name
// for it, else by a word that differs in few letters. Both return -1.
int options_refuse_name(const Options *options, const char *argument, Error *err);
int options_refuse_choice(const Option *option, const char *text, Error *err);

#endif
