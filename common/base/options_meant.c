/* options_meant.c: "did you mean?": what an option or a value that nobody knows was probably meant
 * to be. Names that other programs use come first (options_synonyms.c), then words of nearly the
 * same letters.
 */
#include <stdint.h>
#include <string.h>

#include "common/base/format.h"
#include "common/base/options.h"

enum { NAME_MAX_LENGTH = 48, NEAR_MIN_LENGTH = 4 };

// ---- nearly the same letters --------------------------------------------------------------------

static size_t smallest(size_t a, size_t b, size_t c) {
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

// Counts the letters to insert, remove or replace to make b out of a (Levenshtein 1966), row by row
// of the table.
static size_t edit_distance(const char *a, const char *b) {
    size_t row[NAME_MAX_LENGTH + 1], columns = strlen(b);
    if (columns > NAME_MAX_LENGTH) return SIZE_MAX;
    for (size_t j = 0; j <= columns; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t above = row[j];
            size_t replace = diagonal + (a[i - 1] != b[j - 1]);
            row[j] = smallest(above + 1, row[j - 1] + 1, replace);
            diagonal = above;
        }
    }
    return row[columns];
}

// Near enough to be a slip of the fingers: at most a third of the letters differ.
static bool is_near(const char *given, const char *word, size_t *best) {
    size_t distance = edit_distance(given, word), length = strlen(word);
    if (distance >= *best || distance > (length < 3 ? 1 : length / 3)) return false;
    *best = distance;
    return true;
}

// ---- other programs' names ----------------------------------------------------------------------

// Sets the error that a row of the synonyms leads to: "PROBLEM; did you mean X?", or what to do.
static int refuse_synonym(const OptionSynonym *row, const char *dashes, const char *problem,
                          Error *err) {
    if (!row->meant) return error_set(err, STATUS_USAGE, "%s: %s", problem, row->why);
    bool spelled = row->why && strncmp(row->why, "--", 2) == 0;
    if (spelled) return error_set(err, STATUS_USAGE, "%s; did you mean %s?", problem, row->why);
    return error_set(err, STATUS_USAGE, "%s; did you mean %s%s%s%s%s?", problem, dashes, row->meant,
                     row->why ? " (" : "", row->why ? row->why : "", row->why ? ")" : "");
}

// The row for a name; one that leads to an option of the program comes before one that does not.
static const OptionSynonym *synonym_of_name(const Options *options, const char *given) {
    size_t count;
    const OptionSynonym *rows = options_synonyms(&count), *found = NULL;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].given, given) != 0) continue;
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
        if (strcmp(given + length + 1, text) != 0) continue;
        if (!rows[i].meant || options_has_word(option->metavar, rows[i].meant)) return &rows[i];
    }
    return NULL;
}

// ---- what is said -------------------------------------------------------------------------------

// The row or the option that is written most nearly like `given`.
static void find_near(const Options *options, const char *given, const char **option,
                      const OptionSynonym **row) {
    size_t best = SIZE_MAX, count;
    const OptionSynonym *rows = options_synonyms(&count);
    for (size_t i = 0; i < options->count; i++) {
        const Option *o = &options->table[i];
        if (o->type != OPTION_TITLE && is_near(given, o->name, &best)) *option = o->name;
    }
    for (size_t i = 0; i < count; i++) {
        if (strlen(rows[i].given) < NEAR_MIN_LENGTH || !rows[i].meant) continue;
        if (!options_find(options, rows[i].meant)) continue;
        if (is_near(given, rows[i].given, &best)) *row = &rows[i];
    }
}

int options_refuse_name(const Options *options, const char *argument, Error *err) {
    char given[NAME_MAX_LENGTH] = "", problem[256];
    size_t length = 0;
    for (const char *c = argument + strspn(argument, "-"); *c && *c != '='; c++) {
        if (length + 1 < sizeof given) given[length++] = *c == '_' ? '-' : *c;
    }
    snprintf(problem, sizeof problem, "unknown option %.*s", (int)strcspn(argument, "="), argument);
    const char *near = NULL;
    const OptionSynonym *row = synonym_of_name(options, given);
    if (!row) find_near(options, given, &near, &row);
    if (row) return refuse_synonym(row, "--", problem, err);
    if (near) return error_set(err, STATUS_USAGE, "%s; did you mean --%s?", problem, near);
    return error_set(err, STATUS_USAGE, "%s (--help lists them%s)", problem,
                     options->takes_command ? "; the program's own follow its name" : "");
}

int options_refuse_choice(const Option *option, const char *text, Error *err) {
    char words[256], list[512] = "", problem[1000], *rest = NULL;
    const char *near = NULL;
    size_t best = SIZE_MAX;
    snprintf(words, sizeof words, "%s", option->metavar);
    for (char *word = strtok_r(words, "|", &rest); word; word = strtok_r(NULL, "|", &rest)) {
        if (is_near(text, word, &best)) near = word;
        format_append(list, sizeof list, "%s%s", *list ? ", " : "", word);
    }
    snprintf(problem, sizeof problem, "--%s: '%s' is none of %s", option->name, text, list);
    const OptionSynonym *row = synonym_of_choice(option, text);
    if (row) return refuse_synonym(row, "", problem, err);
    if (!near) return error_set(err, STATUS_USAGE, "%s", problem);
    return error_set(err, STATUS_USAGE, "%s; did you mean %s?", problem, near);
}
