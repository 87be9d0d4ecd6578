/* options.h: command lines. A program adds its options to one table, by which the command line is
 * parsed, ranges are checked, and --help is printed. Unknown options, missing values, values out of
 * range and surplus arguments are errors (STATUS_USAGE) that name the option and suggest the
 * nearest one.
 *
 * Syntax: --name value, --name=value; a flag is --name alone. An underscore in a name is read as a
 * dash, as torchrun does (--nproc_per_node).
 */
#ifndef COMMON_BASE_OPTIONS_H
#define COMMON_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef enum OptionType {
    OPTION_FLAG,   // bool *value; --name sets it to true
    OPTION_INT,    // int *value
    OPTION_SIZE,   // size_t *value or uint64_t *value, which are one type here; decimal
    OPTION_FLOAT,  // double *value; must be finite
    OPTION_PAIR,   // double value[2]; written "0.9,0.999", both in the range
    OPTION_STRING, // const char **value; points into argv
    OPTION_CHOICE, // const char **value; one of the words of `metavar`, separated by '|'
    OPTION_ENUM,   // an enum whose constants are 0, 1, ... in the order of those words
    OPTION_TITLE,  // not an option: `help` is a heading of --help
} OptionType;

typedef struct Option {
    const char *name; // without the dashes
    OptionType type;
    void *value;         // the default before parsing, the value after
    const char *metavar; // shown in --help ("N", "FILE"); for a choice the words, "a|b|c"
    double min, max;     // inclusive range of numbers; min == max means unlimited
    const char *help;
} Option;

typedef struct Options {
    const char *program;
    const char *summary; // the first lines of --help: the program's purpose, and an example
    Option table[96];
    bool given[96]; // whether argv has the option, even if its value equals the default
    size_t count;
    // ddprun: parsing stops at the first argument that is not an option, where a command begins.
    // `rest` is its index in argv (argc if there is none).
    bool takes_command;
    // The text of the command, or of the arguments, in --help; NULL: "COMMAND [ARGUMENT ...]", or
    // A, B, ...
    const char *command;
    // The most arguments that are not options (compare_tensors A B): 0 to 4.
    int positional_max;
    const char *positional[4];
    int positional_count;
    int rest;
} Options;

// Appends one row to the table. Aborts if it is full or has the name already. Programs call the
// functions below, whose prototypes check the value's type.
void options_add(Options *options, Option row);

// Each appends the option --name. *value holds the default and must outlive the table. Numbers
// outside [min, max] are rejected; min == max: no limit.
void options_add_title(Options *options, const char *title); // a heading of --help
void options_add_flag(Options *options, const char *name, bool *value, const char *help);
void options_add_int(Options *options, const char *name, int *value, int min, int max,
                     const char *help);
void options_add_count(Options *options, const char *name, size_t *value, double min, double max,
                       const char *help);
void options_add_float(Options *options, const char *name, double *value, double min, double max,
                       const char *help);
void options_add_pair(Options *options, const char *name, double value[2], double min, double max,
                      const char *help);
// Any text. metavar names the value in --help: "FILE".
void options_add_string(Options *options, const char *name, const char **value, const char *metavar,
                        const char *help);
// One of `words` ("a|b|c"), stored as the word.
void options_add_choice(Options *options, const char *name, const char **value, const char *words,
                        const char *help);
// One of `words`, stored as its index: value points to an enum with constants in the words' order.
void options_add_enum(Options *options, const char *name, void *value, const char *words,
                      const char *help);
// Replaces the metavar, N or F, of the option that was added last.
void options_metavar(Options *options, const char *metavar);

// Parses argv. Returns 0, or -1 with err filled. --help prints the table on stdout, --help=man
// prints it as a manual page; both end the process with status 0 (a failed write is an error).
int options_parse(Options *options, int argc, char **argv, Error *err);

// An option that has no effect with some values of other options.
typedef struct OptionUse {
    const char *name; // or several, "a|b|c"
    bool used;        // whether it has an effect
    const char *why;  // the reason why it has none: the end of the error's line
} OptionUse;

// Rejects given options without effect. Returns 0 if every option of `uses` that was given is used,
// or -1 with err filled: "--NAME has no effect: WHY".
int options_check_used(const Options *options, const OptionUse *uses, size_t count, Error *err);

// The option of this name; NULL if there is none.
const Option *options_find(const Options *options, const char *name);
// Whether argv had the option, even with its default. False if the table lacks it.
bool options_given(const Options *options, const char *name);
// Whether the value of an option with words is `word`.
bool options_is(const Options *options, const char *name, const char *word);
// The option's value as text; NULL if a string or choice has none. A flag is "on" or "off". Numbers
// and an enum's word are written into buffer[capacity].
const char *option_text(const Option *option, char *buffer, size_t capacity);

// Whether `word` is one of the choices "a|b|c".
bool options_has_word(const char *words, const char *word);

typedef struct OptionWord { // of "a|b|c"; not NUL-terminated
    const char *start;
    int length, number;
} OptionWord;

// Sets `word` to the next of the words; {0} precedes the first. Returns false after the last.
bool options_next_word(const char *words, OptionWord *word);

// The word that `given` is most likely a misspelling of: its length is at least `shortest`, and its
// edit distance is at most a third of its length and less than *best (initially SIZE_MAX), which is
// then set to it. Its start is NULL if there is none.
OptionWord options_nearest(const char *given, const char *words, int shortest, size_t *best);

void options_print_help(const Options *options, FILE *stream);
void options_print_man(const Options *options, FILE *stream); // roff, for man(1)

// For the parser (options_meant.c): the error for an option that the table lacks, and for a value
// that is none of an option's choices, with a suggestion: by another program's name for it, else
// by edit distance. Both return -1.
int options_refuse_name(const Options *options, const char *argument, Error *err);
int options_refuse_choice(const Option *option, const char *text, Error *err);

#endif
