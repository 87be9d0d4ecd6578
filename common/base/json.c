/* json.c: writes JSON as a stream; the only state is whether each level needs a comma.
 *
 * Layout: elements of the two outer levels have lines of their own, deeper ones share a line.
 * So a configuration is readable, and a trace has one event per line. Errors of the stream are
 * checked by its owner (file_commit).
 */
#include "common/base/json.h"

#include <math.h>

#include "common/base/error.h"
#include "common/base/format.h"

enum { MAX_DEPTH = 32, OPEN_LEVELS = 2, INDENT = 2 }; // MAX_DEPTH: the length of needs_comma

static void new_line(const Json *json) {
    fprintf(json->file, "\n%*s", INDENT * json->depth, "");
}

static void write_string(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            fprintf(file, "\\%c", c);
        } else if (c == '\n') {
            fputs("\\n", file);
        } else if (c == '\t') {
            fputs("\\t", file);
        } else if (c < ' ') {
            fprintf(file, "\\u%04x", c);
        } else {
            fputc(c, file); // UTF-8 is copied unchanged
        }
    }
    fputc('"', file);
}

// Writes the text before a value: the comma after the previous value, the line's start, the key.
static void begin_value(Json *json, const char *key) {
    if (json->depth > 0) {
        if (json->needs_comma[json->depth]) fputc(',', json->file);
        if (json->depth <= OPEN_LEVELS)
            new_line(json);
        else if (json->needs_comma[json->depth])
            fputc(' ', json->file);
        json->needs_comma[json->depth] = true;
    }
    if (key) {
        write_string(json->file, key);
        fputs(": ", json->file);
    }
}

static void open_level(Json *json, const char *key, char bracket) {
    begin_value(json, key);
    fputc(bracket, json->file);
    json->depth++;
    CHECK(json->depth < MAX_DEPTH, "JSON nested deeper than %d levels", MAX_DEPTH - 1);
    json->needs_comma[json->depth] = false;
}

static void close_level(Json *json, char bracket) {
    CHECK(json->depth > 0, "'%c' without its opening bracket", bracket);
    bool lines = json->depth <= OPEN_LEVELS && json->needs_comma[json->depth];
    json->depth--;
    if (lines) new_line(json);
    fputc(bracket, json->file);
    if (json->depth == 0) fputc('\n', json->file);
}

void json_begin_object(Json *json, const char *key) {
    open_level(json, key, '{');
}
void json_end_object(Json *json) {
    close_level(json, '}');
}
void json_begin_array(Json *json, const char *key) {
    open_level(json, key, '[');
}
void json_end_array(Json *json) {
    close_level(json, ']');
}

void json_string(Json *json, const char *key, const char *value) {
    begin_value(json, key);
    if (value)
        write_string(json->file, value);
    else
        fputs("null", json->file);
}

void json_number(Json *json, const char *key, double value) {
    begin_value(json, key);
    fputs(isfinite(value) ? format_number(value).text : "null", json->file);
}

void json_integer(Json *json, const char *key, int64_t value) {
    begin_value(json, key);
    fprintf(json->file, "%lld", (long long)value);
}

void json_bool(Json *json, const char *key, bool value) {
    begin_value(json, key);
    fputs(value ? "true" : "false", json->file);
}
