/* flight_dump.c: see flight_dump.h. */
#include "ddp/group/flight_dump.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/memory.h"
#include "ddp/group/flight_recorder.h"

enum {
    FILE_MAX = 4 << 20,       // FLIGHT_RECORDS records take less than half of it
    RANK_MAX = (1 << 20) - 1, // no job is larger
};
static const uint64_t NUMBER_MAX = (uint64_t)1 << 53; // all whole numbers up to it are doubles

// ---- fields ---------------------------------------------------------------------------------

// Reads a whole number up to `most`. -1 with err filled if the item is none.
static int read_number(const cJSON *item, const char *key, uint64_t most, uint64_t *number,
                       Error *err) {
    double value = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (!(value >= 0 && value <= (double)most) || floor(value) != value)
        return error_set(err, STATUS_USAGE, "'%s' is not a whole number from 0 to %ju", key,
                         (uintmax_t)most);
    *number = (uint64_t)value;
    return 0;
}

static const cJSON *field(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

// A copy in one line: a control character in a damaged file is not to write lines of its own.
static char *copy_text(const cJSON *item) {
    const char *text = cJSON_GetStringValue(item);
    if (!text) return NULL;
    char *copy = memory_format("%s", text);
    for (char *at = copy; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
    return copy;
}

// ---- one file -------------------------------------------------------------------------------

// Skips sends and receives: their sequence number is 0, as they have no common order.
static int read_entry(FlightDump *dump, const cJSON *item, Error *err) {
    const char *state = cJSON_GetStringValue(field(item, "state"));
    const cJSON *call = field(item, "call"), *started = field(item, "time_discovered_started_ns");
    FlightEntry entry = {0};
    if (!state || !cJSON_IsString(call))
        return error_set(err, STATUS_USAGE, "it has no 'state' or no 'call'");
    if (read_number(field(item, "collective_seq_id"), "collective_seq_id", NUMBER_MAX,
                    &entry.sequence, err) != 0)
        return -1;
    if (!cJSON_IsNull(started) &&
        read_number(started, "time_discovered_started_ns", NUMBER_MAX, &entry.started_ns, err) != 0)
        return -1;
    if (entry.sequence == 0) return 0;
    if (dump->count > 0 && entry.sequence <= dump->entries[dump->count - 1].sequence)
        return error_set(err, STATUS_USAGE, "its 'collective_seq_id' does not ascend");
    entry.completed = strcmp(state, "completed") == 0;
    entry.started = strcmp(state, "scheduled") != 0;
    entry.call = copy_text(call);
    dump->entries[dump->count++] = entry;
    return 0;
}

static int read_entries(FlightDump *dump, const cJSON *entries, Error *err) {
    const cJSON *item;
    int length = cJSON_GetArraySize(entries), i = 0;
    if (length > FLIGHT_RECORDS)
        return error_set(err, STATUS_USAGE, "it has %d records; a rank keeps %d", length,
                         FLIGHT_RECORDS);
    dump->entries = memory_zalloc((size_t)length * sizeof *dump->entries);
    cJSON_ArrayForEach(item, entries) {
        if (read_entry(dump, item, err) != 0) return error_prefix(err, "record %d", i + 1);
        i++;
    }
    return 0;
}

static int read_ranks(FlightDump *dump, const cJSON *ranks, Error *err) {
    const cJSON *item;
    dump->ranks = memory_zalloc((size_t)cJSON_GetArraySize(ranks) * sizeof *dump->ranks);
    cJSON_ArrayForEach(item, ranks) {
        uint64_t rank = 0;
        if (read_number(item, "ranks", RANK_MAX, &rank, err) != 0) return -1;
        dump->ranks[dump->size++] = (int)rank;
    }
    for (dump->place = 0; dump->place < dump->size; dump->place++)
        if (dump->ranks[dump->place] == dump->rank) return 0;
    return error_set(err, STATUS_USAGE, "its rank %d is not one of its group's", dump->rank);
}

static int read_fields(FlightDump *dump, const cJSON *json, Error *err) {
    uint64_t rank = 0;
    dump->group = copy_text(field(json, "process_group"));
    dump->error = copy_text(field(json, "error"));
    if (read_number(field(json, "rank"), "rank", RANK_MAX, &rank, err) != 0 ||
        read_number(field(json, "dumped_ns"), "dumped_ns", NUMBER_MAX, &dump->dumped_ns, err) != 0)
        return -1;
    dump->rank = (int)rank;
    if (read_ranks(dump, field(json, "ranks"), err) != 0) return -1;
    return read_entries(dump, field(json, "entries"), err);
}

// NULL with err filled if the file is not JSON, or larger than a recorder writes.
static cJSON *read_json(const char *path, Error *err) {
    size_t bytes = 0;
    FILE *file = file_open_stream(path, &bytes, err);
    if (!file) return NULL;
    if (bytes > FILE_MAX) {
        fclose(file);
        return error_null(err, STATUS_USAGE, "%s holds no flight records: it is too large", path);
    }
    char *text = memory_zalloc(bytes + 1);
    bytes = fread(text, 1, bytes, file);
    fclose(file);
    cJSON *json = cJSON_ParseWithLength(text, bytes);
    free(text);
    if (!json) error_set(err, STATUS_USAGE, "%s holds no flight records: it is not JSON", path);
    return json;
}

static int read_dump(FlightDump *dump, const char *path, Error *err) {
    cJSON *json = read_json(path, err);
    if (!json) return -1;
    int status = -1;
    if (!cJSON_IsString(field(json, "process_group")) || !cJSON_IsArray(field(json, "ranks")) ||
        !cJSON_IsArray(field(json, "entries"))) {
        error_set(err, STATUS_USAGE, "%s holds no flight records", path);
    } else {
        status = read_fields(dump, json, err);
        if (status != 0) error_prefix(err, "%s is damaged", path);
    }
    cJSON_Delete(json);
    return status;
}

// ---- all files ------------------------------------------------------------------------------

static int is_dump_name(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return length >= strlen("flight_.json") && strncmp(entry->d_name, "flight_", 7) == 0 &&
           strcmp(entry->d_name + length - 5, ".json") == 0;
}

int flight_dumps_read(FlightDumps *dumps, const char *folder, Error *err) {
    struct dirent **names;
    *dumps = (FlightDumps){0};
    int found = scandir(folder, &names, is_dump_name, alphasort), status = 0;
    if (found < 0) return error_set(err, STATUS_USAGE, "%s: %s", folder, strerror(errno));
    if (found == 0)
        status =
            error_set(err, STATUS_USAGE, "%s: there are no flight records (flight_*.json)", folder);
    dumps->all = memory_zalloc((size_t)found * sizeof *dumps->all);
    for (int i = 0; i < found; i++) {
        char *path = memory_format("%s/%s", folder, names[i]->d_name);
        if (status == 0) status = read_dump(&dumps->all[dumps->count++], path, err);
        free(path);
        free(names[i]);
    }
    free(names);
    return status;
}

void flight_dumps_free(FlightDumps *dumps) {
    for (size_t i = 0; i < dumps->count; i++) {
        FlightDump *dump = &dumps->all[i];
        for (size_t e = 0; e < dump->count; e++) free(dump->entries[e].call);
        free(dump->entries);
        free(dump->ranks);
        free(dump->group);
        free(dump->error);
    }
    free(dumps->all);
    *dumps = (FlightDumps){0};
}
