/* options_meant.c: "did you mean?" for an unknown option or value: first by other programs' names
 * (options_synonyms.c), then by edit distance.
 */
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "common/base/format.h"
#include "common/base/options.h"

enum { NAME_MAX_LENGTH = 48, NEAR_MIN_LENGTH = 4 };

// ---- edit distance ------------------------------------------------------------------------------

static bool same_letter(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

// The number of letters to insert, remove, replace or swap with a neighbour that turns `given` into
// the word, ignoring case (Damerau 1964, Levenshtein 1966).
static size_t edit_distance(const char *given, OptionWord word) {
    size_t d[NAME_MAX_LENGTH + 1][NAME_MAX_LENGTH + 1];
    const size_t rows = strlen(given), columns = (size_t)word.length;
    if (rows > NAME_MAX_LENGTH || columns > NAME_MAX_LENGTH) return SIZE_MAX;
    for (size_t i = 0; i <= rows; i++) {
        for (size_t j = 0; j <= columns; j++) {
            const char *a = given + i - 1, *b = word.start + j - 1;
            size_t least = i + j; // at the margins: all inserted, or all removed
            if (i > 0 && j > 0) {
                least = d[i - 1][j - 1] + !same_letter(*a, *b);
                if (d[i - 1][j] + 1 < least) least = d[i - 1][j] + 1;
                if (d[i][j - 1] + 1 < least) least = d[i][j - 1] + 1;
            }
            bool swapped = i > 1 && j > 1 && same_letter(*a, b[-1]) && same_letter(a[-1], *b);
            if (swapped && d[i - 2][j - 2] + 1 < least) least = d[i - 2][j - 2] + 1;
            d[i][j] = least;
        }
    }
    return d[rows][columns];
}

bool options_is_near(const char *given, OptionWord word, size_t *best) {
    size_t distance = edit_distance(given, word), length = (size_t)word.length;
    if (distance >= *best || distance > (length < 3 ? 1 : length / 3)) return false;
    *best = distance;
    return true;
}

OptionWord options_nearest(const char *given, const char *words) {
    OptionWord nearest = {0};
    size_t best = SIZE_MAX;
    for (OptionWord word = {0}; options_next_word(words, &word);)
        if (options_is_near(given, word, &best)) nearest = word;
    return nearest;
}

// ---- other programs' names ----------------------------------------------------------------------

// Sets the error of a row of the synonyms: "PROBLEM; did you mean X?", or "PROBLEM: REMARK".
static int refuse_synonym(const OptionSynonym *row, const char *dashes, const char *problem,
                          Error *err) {
    if (!row->meant) return error_set(err, STATUS_USAGE, "%s: %s", problem, row->why);
    bool spelled = row->why && strncmp(row->why, "--", 2) == 0;
    if (spelled) return error_set(err, STATUS_USAGE, "%s; did you mean %s?", problem, row->why);
    return error_set(err, STATUS_USAGE, "%s; did you mean %s%s%s%s%s?", problem, dashes, row->meant,
                     row->why ? " (" : "", row->why ? row->why : "", row->why ? ")" : "");
}

// The row for a name. Rows whose option the program has precede rows without an option.
static const OptionSynonym *synonym_of_name(const Options *options, const char *given) {
    size_t count;
    const OptionSynonym *rows = options_synonyms(&count), *found = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!options_has_word(rows[i].given, given)) continue;
        if (rows[i].meant && options_find(options, rows[i].meant)) return &rows[i];
        if (!rows[i].meant) found = &rows[i];
    }
    return found;
}

static const OptionSynonym *synonym_of_choice(const Option *option, const char *text) {
    size_t count, length = strlen(option->name);
    const OptionSynonym *rows = options_synonyms(&count);
    for (size_t i = 0; i < count; i++) {
        const char *given = rows[i].given;
        if (strncmp(given, option->name, length) != 0 || given[length] != '=') continue;
        if (!options_has_word(given + length + 1, text)) continue;
        if (!rows[i].meant || options_has_word(option->metavar, rows[i].meant)) return &rows[i];
    }
    return NULL;
}

// ---- errors -------------------------------------------------------------------------------------

// Sets *option or *row to the option or the row of the synonyms with the least edit distance.
static void find_near(const Options *options, const char *given, const char **option,
                      const OptionSynonym **row) {
    size_t best = SIZE_MAX, count;
    const OptionSynonym *rows = options_synonyms(&count);
    for (size_t i = 0; i < options->count; i++) {
        const Option *o = &options->table[i];
        if (o->type == OPTION_TITLE) continue;
        if (options_is_near(given, (OptionWord){.start = o->name, .length = (int)strlen(o->name)},
                            &best))
            *option = o->name;
    }
    for (size_t i = 0; i < count; i++) {
        if (!rows[i].meant || !options_find(options, rows[i].meant)) continue;
        for (OptionWord word = {0}; options_next_word(rows[i].given, &word);)
            if (word.length >= NEAR_MIN_LENGTH && options_is_near(given, word, &best))
                *row = &rows[i];
    }
}

int options_refuse_name(const Options *options, const char *argument, Error *err) {
    char given[NAME_MAX_LENGTH] = "", name[256], problem[256];
    size_t length = 0;
    for (const char *c = argument + strspn(argument, "-"); *c && *c != '='; c++) {
        if (length + 1 < sizeof given) given[length++] = *c == '_' ? '-' : *c;
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(argument, "="), argument);
    snprintf(problem, sizeof problem, "unknown option %s", format_quote(name).text);
    const char *near = NULL;
    const OptionSynonym *row = synonym_of_name(options, given);
    if (!row) find_near(options, given, &near, &row);
    if (row) return refuse_synonym(row, "--", problem, err);
    if (near) return error_set(err, STATUS_USAGE, "%s; did you mean --%s?", problem, near);
    return error_set(err, STATUS_USAGE, "%s (--help lists them%s)", problem,
                     options->takes_command ? "; the program's own follow its name" : "");
}

int options_refuse_choice(const Option *option, const char *text, Error *err) {
    char list[512] = "", problem[1000];
    for (OptionWord word = {0}; options_next_word(option->metavar, &word);)
        format_append(list, sizeof list, "%s%.*s", *list ? ", " : "", word.length, word.start);
    snprintf(problem, sizeof problem, "--%s: '%s' is none of %s", option->name,
             format_quote(text).text, list);
    const OptionSynonym *row = synonym_of_choice(option, text);
    if (row) return refuse_synonym(row, "", problem, err);
    const OptionWord near = options_nearest(text, option->metavar);
    if (!near.start) return error_set(err, STATUS_USAGE, "%s", problem);
    return error_set(err, STATUS_USAGE, "%s; did you mean %.*s?", problem, near.length, near.start);
}
