/* profile_file.c: see profile_file.h. */
#include "bench/model/profile_file.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/memory.h"

enum { MAX_BYTES = 64 << 20, MAX_TENSORS = 1 << 20 };

// ---- writing -----------------------------------------------------------------------------------

static void write_time(Json *json, const char *key, RowTime time) {
    json_begin_array(json, key);
    json_number(json, NULL, time.fixed);
    json_number(json, NULL, time.per_row);
    json_end_array(json);
}

static void write_fields(Json *json, const StepProfile *p, const size_t rows[2]) {
    json_string(json, "name", p->name);
    json_begin_array(json, "rows");
    json_integer(json, NULL, (int64_t)rows[0]);
    json_integer(json, NULL, (int64_t)rows[1]);
    json_end_array(json);
    write_time(json, "forward_s", p->forward);
    write_time(json, "loss_s", p->loss);
    write_time(json, "backward_s", p->backward);
    json_number(json, "optimizer_s", p->optimizer);
    json_number(json, "sample_bytes", p->sample_bytes);
    json_number(json, "output_bytes", p->output_bytes);
    json_number(json, "messages", p->messages);
}

int profile_file_write(const StepProfile *p, const size_t rows[2], const char *path, Error *err) {
    AtomicFile file;
    if (file_begin(&file, path, err) != 0) return -1;
    Json json = {.file = file.file};
    json_begin_object(&json, NULL);
    write_fields(&json, p, rows);
    json_begin_array(&json, "tensors");
    for (size_t k = 0; k < p->tensor_count; k++) {
        json_begin_object(&json, NULL);
        json_number(&json, "bytes", p->tensors[k].bytes);
        json_number(&json, "ready", p->tensors[k].ready);
        json_integer(&json, "unit", p->tensors[k].unit);
        json_end_object(&json);
    }
    json_end_array(&json);
    json_end_object(&json);
    return file_commit(&file, err);
}

// ---- reading -----------------------------------------------------------------------------------

// Reads a number of the file, which must lie in 0 .. most. An item that is missing (NULL) is an
// error.
static int read_number(const cJSON *item, const char *key, double most, double *value, Error *err) {
    *value = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (*value >= 0 && *value <= most) return 0;
    return error_set(err, STATUS_USAGE, "%s: expected a number from 0 to %g", key, most);
}

static int read_field(const cJSON *root, const char *key, double most, double *value, Error *err) {
    return read_number(cJSON_GetObjectItemCaseSensitive(root, key), key, most, value, err);
}

static int read_time(const cJSON *root, const char *key, RowTime *time, Error *err) {
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(root, key);
    if (read_number(cJSON_GetArrayItem(pair, 0), key, 1e6, &time->fixed, err) != 0) return -1;
    return read_number(cJSON_GetArrayItem(pair, 1), key, 1e6, &time->per_row, err);
}

static int read_tensors(StepProfile *p, const cJSON *root, Error *err) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "tensors"), *item;
    int count = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    if (count < 1 || count > MAX_TENSORS)
        return error_set(err, STATUS_USAGE, "tensors: expected a list of 1 to %d", MAX_TENSORS);
    p->tensors = memory_zalloc((size_t)count * sizeof *p->tensors);
    double before = 0;
    cJSON_ArrayForEach(item, list) {
        ModelTensor *tensor = &p->tensors[p->tensor_count++];
        if (read_field(item, "bytes", 1e15, &tensor->bytes, err) != 0) return -1;
        if (read_field(item, "ready", 1, &tensor->ready, err) != 0) return -1;
        if (tensor->ready < before)
            return error_set(err, STATUS_USAGE, "tensors: not in the order of becoming ready");
        before = tensor->ready;
        double unit = UNIT_ALONE;
        if (cJSON_HasObjectItem(item, "unit") &&
            read_field(item, "unit", MAX_TENSORS, &unit, err) != 0)
            return -1;
        tensor->unit = (int)unit;
    }
    return 0;
}

static int read_fields(StepProfile *p, const cJSON *root, Error *err) {
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "name"));
    snprintf(p->name, sizeof p->name, "%s", name ? name : "a network");
    if (read_time(root, "forward_s", &p->forward, err) != 0) return -1;
    if (read_time(root, "loss_s", &p->loss, err) != 0) return -1;
    if (read_time(root, "backward_s", &p->backward, err) != 0) return -1;
    if (read_field(root, "optimizer_s", 1e6, &p->optimizer, err) != 0) return -1;
    if (read_field(root, "sample_bytes", 1e15, &p->sample_bytes, err) != 0) return -1;
    if (read_field(root, "output_bytes", 1e15, &p->output_bytes, err) != 0) return -1;
    if (read_field(root, "messages", 1e9, &p->messages, err) != 0) return -1;
    return read_tensors(p, root, err);
}

int profile_file_read(StepProfile *profile, const char *path, Error *err) {
    *profile = (StepProfile){0};
    FILE *file = file_open_stream(path, NULL, err);
    if (!file) return -1;
    char *text = memory_zalloc(MAX_BYTES + 1);
    size_t length = fread(text, 1, MAX_BYTES, file);
    fclose(file);
    cJSON *root = cJSON_ParseWithLength(text, length);
    free(text);
    int failed = -1;
    if (cJSON_IsObject(root))
        failed = read_fields(profile, root, err);
    else
        error_set(err, STATUS_USAGE, "it is not a JSON object");
    cJSON_Delete(root);
    if (failed != 0) {
        step_profile_free(profile);
        error_prefix(err, "%s", path);
    }
    return failed;
}
