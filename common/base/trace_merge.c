/* trace_merge.c: see trace_merge.h. Holds one file at a time in memory, and copies its events with
 * their times mapped. trace.c describes the events.
 */
#include "common/base/trace_merge.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/memory.h"
#include "common/base/trace.h"

typedef struct Clock {
    char name[64];
    double marks_us[TRACE_MARKS];
    int mark_count;
} Clock;

typedef struct Merging {
    Json json;
    Clock clock; // of the first file
    double dropped;
} Merging;

static cJSON *parse_trace(const char *path, Error *err) {
    FILE *file = file_open_stream(path, NULL, err);
    if (!file) return NULL;
    char *text = NULL;
    size_t room = 0;
    ssize_t length = getdelim(&text, &room, '\0', file);
    fclose(file);
    cJSON *root = length > 0 ? cJSON_ParseWithLength(text, (size_t)length) : NULL;
    free(text);
    if (cJSON_IsArray(cJSON_GetObjectItem(root, "traceEvents"))) return root;
    cJSON_Delete(root);
    error_set(err, STATUS_USAGE, "%s: is no trace", path);
    return NULL;
}

static Clock clock_of(const cJSON *root) {
    const cJSON *about = cJSON_GetObjectItem(root, "otherData"), *mark;
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(about, "clock"));
    Clock clock = {0};
    snprintf(clock.name, sizeof clock.name, "%s", name ? name : "");
    cJSON_ArrayForEach(mark, cJSON_GetObjectItem(about, "marks_us")) {
        if (clock.mark_count < TRACE_MARKS && cJSON_IsNumber(mark))
            clock.marks_us[clock.mark_count++] = mark->valuedouble;
    }
    return clock;
}

// Maps a time of a file's own clock to the first file's.
static double on_first_clock(const Clock *first, const Clock *own, double us) {
    if (strcmp(first->name, own->name) == 0) return us;
    double rate = 1, length = own->marks_us[1] - own->marks_us[0];
    if (first->mark_count > 1 && own->mark_count > 1 && length > 0)
        rate = (first->marks_us[1] - first->marks_us[0]) / length;
    return first->marks_us[0] + (us - own->marks_us[0]) * rate;
}

// Copies a value. (A trace has neither booleans nor nulls.)
static void write_value(Json *json, const char *key, const cJSON *value) {
    const cJSON *item;
    if (cJSON_IsString(value)) {
        json_string(json, key, value->valuestring);
    } else if (cJSON_IsNumber(value)) {
        json_number(json, key, value->valuedouble);
    } else if (cJSON_IsObject(value)) {
        json_begin_object(json, key);
        cJSON_ArrayForEach(item, value) write_value(json, item->string, item);
        json_end_object(json);
    } else if (cJSON_IsArray(value)) {
        json_begin_array(json, key);
        cJSON_ArrayForEach(item, value) write_value(json, NULL, item);
        json_end_array(json);
    }
}

static int merge_file(Merging *merging, const char *path, bool first, Error *err) {
    cJSON *root = parse_trace(path, err);
    if (!root) return -1;
    Clock own = clock_of(root);
    if (first) merging->clock = own;
    bool same = strcmp(own.name, merging->clock.name) == 0;
    if (!same && (own.mark_count == 0 || merging->clock.mark_count == 0)) {
        cJSON_Delete(root);
        return error_set(err, STATUS_USAGE, "%s: is of another machine and has no marks", path);
    }
    const cJSON *about = cJSON_GetObjectItem(root, "otherData");
    const cJSON *dropped = cJSON_GetObjectItem(about, "dropped_spans");
    if (cJSON_IsNumber(dropped)) merging->dropped += dropped->valuedouble;
    cJSON *event;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(root, "traceEvents")) {
        cJSON *time = cJSON_GetObjectItem(event, "ts");
        if (cJSON_IsNumber(time)) // so it is not NULL: NOLINTNEXTLINE(*NullDereference)
            cJSON_SetNumberValue(time, on_first_clock(&merging->clock, &own, time->valuedouble));
        write_value(&merging->json, NULL, event);
    }
    cJSON_Delete(root);
    return 0;
}

static void write_about(Merging *merging) {
    json_begin_object(&merging->json, "otherData");
    json_number(&merging->json, "dropped_spans", merging->dropped);
    json_string(&merging->json, "clock", merging->clock.name);
    json_begin_array(&merging->json, "marks_us"); // so that it can be merged again
    for (int i = 0; i < merging->clock.mark_count; i++)
        json_number(&merging->json, NULL, merging->clock.marks_us[i]);
    json_end_array(&merging->json);
    json_end_object(&merging->json);
}

int trace_merge(const char *path, const char *const *files, size_t count, Error *err) {
    AtomicFile file;
    int failed = 0;
    if (file_begin(&file, path, err) != 0) return -1;
    Merging merging = {.json = {.file = file.file}};
    json_begin_object(&merging.json, NULL);
    json_string(&merging.json, "displayTimeUnit", "ms");
    json_begin_array(&merging.json, "traceEvents");
    for (size_t i = 0; !failed && i < count; i++)
        failed = merge_file(&merging, files[i], i == 0, err);
    if (failed) {
        file_abandon(&file);
        return -1;
    }
    json_end_array(&merging.json);
    write_about(&merging);
    json_end_object(&merging.json);
    return file_commit(&file, err);
}

// ---- the ranks of a job -----------------------------------------------------------------------

char *trace_part(const char *path, int rank) {
    return rank == 0 ? memory_format("%s", path) : memory_format("%s.rank%d", path, rank);
}

int trace_merge_ranks(const char *path, int ranks, Error *err) {
    char **parts = memory_zalloc((size_t)ranks * sizeof *parts);
    int count = 0;
    for (int rank = 0; rank < ranks; rank++) {
        parts[count] = trace_part(path, rank);
        if (access(parts[count], F_OK) == 0)
            count++;
        else
            free(parts[count]);
    }
    int failed = trace_merge(path, (const char *const *)parts, (size_t)count, err);
    for (int i = 0; i < count; i++) {
        if (!failed && strcmp(parts[i], path) != 0) unlink(parts[i]);
        free(parts[i]);
    }
    free(parts);
    return failed ? -1 : ranks - count;
}
