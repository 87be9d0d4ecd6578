/* safetensors.c: writes a file of named tensors; safetensors_read.c reads.
 *
 * Invariant: a written file passes every check of the reader: names are distinct, each
 * tensor's bytes follow from its shape, and the tensors cover the data part without holes. The
 * header is padded with spaces to a multiple of 8, and types of 8 bytes come first, so that in a
 * file mapped into memory every tensor is aligned. The checksum is computed with zeros for its own
 * digits, so it covers the header, too. Atomic replacement is in base/file.h, JSON in base/json.h.
 */
#include "common/tensor_files/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/memory.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the file holds little-endian numbers, and they are written as they lie in memory");

enum { HEADER_ALIGNMENT = 8 };

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void check_content(const SafeTensors *content) {
    const char **names = memory_zalloc(content->count * sizeof *names);
    for (size_t i = 0; i < content->count; i++) {
        const SafeEntry *entry = &content->entries[i];
        size_t bytes = dtype_bytes(entry->dtype);
        for (int d = 0; d < entry->ndim; d++) bytes *= entry->shape[d];
        CHECK(bytes == entry->bytes, "tensor %s has %zu bytes, its shape says %zu", entry->name,
              entry->bytes, bytes);
        CHECK(strcmp(entry->name, "__metadata__") != 0, "tensor %zu has a reserved name", i);
        names[i] = entry->name;
    }
    qsort(names, content->count, sizeof *names, compare_names);
    for (size_t i = 1; i < content->count; i++)
        CHECK(strcmp(names[i - 1], names[i]) != 0, "two tensors are called %s", names[i]);
    free(names);
    CHECK(!safetensors_meta(content, "crc32"), "the checksum is not the caller's to give");
}

static void write_entry(Json *json, const SafeEntry *entry, size_t offset) {
    json_begin_object(json, entry->name);
    json_string(json, "dtype", dtype_name(entry->dtype));
    json_begin_array(json, "shape");
    for (int d = 0; d < entry->ndim; d++) json_integer(json, NULL, (int64_t)entry->shape[d]);
    json_end_array(json);
    json_begin_array(json, "data_offsets");
    json_integer(json, NULL, (int64_t)offset);
    json_integer(json, NULL, (int64_t)(offset + entry->bytes));
    json_end_array(json);
    json_end_object(json);
}

// Returns the tensors in the file's order, freed by the caller: types of 8 bytes first, otherwise
// as given.
static const SafeEntry **layout_order(const SafeTensors *content) {
    const SafeEntry **order = memory_zalloc(content->count * sizeof *order);
    size_t placed = 0;
    for (int wide = 1; wide >= 0; wide--)
        for (size_t i = 0; i < content->count; i++)
            if ((dtype_bytes(content->entries[i].dtype) == 8) == wide)
                order[placed++] = &content->entries[i];
    return order;
}

// Returns the file's header, freed by the caller: JSON, padded, with the checksum, which is
// computed with zeros for its digits.
static char *make_header(const SafeTensors *content, const SafeEntry **order, size_t *length) {
    char *text = NULL;
    FILE *stream = open_memstream(&text, length);
    CHECK(stream, "no memory for a header of %zu tensors", content->count);
    Json json = {.file = stream};
    json_begin_object(&json, NULL);
    json_begin_object(&json, "__metadata__");
    json_string(&json, "crc32", "00000000");
    for (size_t i = 0; i < content->meta_count; i++)
        json_string(&json, content->meta[i].key, content->meta[i].value);
    json_end_object(&json);
    size_t offset = 0;
    for (size_t i = 0; i < content->count; i++) {
        write_entry(&json, order[i], offset);
        offset += order[i]->bytes;
    }
    json_end_object(&json);
    fflush(stream); // updates *length
    size_t beyond = *length % HEADER_ALIGNMENT;
    if (beyond > 0) fprintf(stream, "%*s", (int)(HEADER_ALIGNMENT - beyond), "");
    CHECK(fclose(stream) == 0, "no memory for a header of %zu tensors", content->count);
    uLong crc = crc32_z(0, (const Bytef *)text, *length);
    for (size_t i = 0; i < content->count; i++)
        if (order[i]->bytes > 0) crc = crc32_z(crc, order[i]->data, order[i]->bytes);
    char digits[SAFE_DIGITS + 1];
    snprintf(digits, sizeof digits, "%08x", (unsigned)crc);
    memcpy(safetensors_find_digits(text, *length), digits, SAFE_DIGITS);
    return text;
}

void safetensors_checksum(const SafeTensors *content, char digits[SAFE_DIGITS + 1]) {
    const SafeEntry **order = layout_order(content);
    size_t length;
    char *header = make_header(content, order, &length);
    memcpy(digits, safetensors_find_digits(header, length), SAFE_DIGITS);
    digits[SAFE_DIGITS] = '\0';
    free(header);
    free(order);
}

int safetensors_write(const char *path, const SafeTensors *content, Error *err) {
    check_content(content);
    AtomicFile file;
    const SafeEntry **order = layout_order(content);
    size_t length;
    char *header = make_header(content, order, &length);
    int status = 0;
    if (content->count > SAFE_TENSORS_MAX || length > SAFE_HEADER_MAX)
        status = error_set(err, STATUS_USAGE,
                           "cannot write %s: %zu tensors with a header of %zu bytes; the reader "
                           "accepts at most %d and %d",
                           path, content->count, length, SAFE_TENSORS_MAX, SAFE_HEADER_MAX);
    if (status == 0) status = file_begin(&file, path, err);
    if (status == 0) {
        uint64_t n = length;
        fwrite(&n, sizeof n, 1, file.file); // file_commit reports a failed write
        fwrite(header, 1, length, file.file);
        for (size_t i = 0; i < content->count; i++)
            if (order[i]->bytes > 0) fwrite(order[i]->data, 1, order[i]->bytes, file.file);
        status = file_commit(&file, err);
    }
    free(header);
    free(order);
    return status;
}

void safetensors_free(SafeTensors *content) {
    if (!content) return;
    free(content->entries);
    free(content->meta);
    free(content->buffer);
    *content = (SafeTensors){0};
}

const SafeEntry *safetensors_find(const SafeTensors *content, const char *name) {
    for (size_t i = 0; i < content->count; i++)
        if (strcmp(content->entries[i].name, name) == 0) return &content->entries[i];
    return NULL;
}

const char *safetensors_meta(const SafeTensors *content, const char *key) {
    for (size_t i = 0; i < content->meta_count; i++)
        if (strcmp(content->meta[i].key, key) == 0) return content->meta[i].value;
    return NULL;
}

// A match is the key: only the metadata has string values, and quotes inside strings are escaped.
char *safetensors_find_digits(char *header, size_t length) {
    static const char KEY[] = "\"crc32\"";
    char *end = header + length;
    for (char *at = header; (at = memmem(at, (size_t)(end - at), KEY, sizeof KEY - 1));) {
        at += sizeof KEY - 1;
        char *value = at + strspn(at, " \t\r\n");
        if (*value++ != ':') continue;
        value += strspn(value, " \t\r\n");
        if (*value++ != '"') continue;
        if (strcspn(value, "\"\\") == SAFE_DIGITS && value[SAFE_DIGITS] == '"') return value;
    }
    return NULL;
}
