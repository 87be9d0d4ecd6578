/* json.h: writing JSON, streamed to a FILE. (cJSON reads it.) Adds commas, quotes and escapes; NaN
 * and infinities, which JSON lacks, are written as null.
 */
#ifndef COMMON_BASE_JSON_H
#define COMMON_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Json {
    FILE *file;
    int depth;
    bool needs_comma[32]; // per depth
} Json;

// Values inside an object take a key; inside an array key is NULL.
void json_begin_object(Json *json, const char *key);
void json_end_object(Json *json);
void json_begin_array(Json *json, const char *key);
void json_end_array(Json *json);
void json_string(Json *json, const char *key, const char *value); // NULL is written as null
void json_number(Json *json, const char *key, double value);      // fewest digits that read back
void json_integer(Json *json, const char *key, int64_t value);
void json_bool(Json *json, const char *key, bool value);

#endif
