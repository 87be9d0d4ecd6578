/* safetensors_read.c: reads a file of named tensors from an untrusted source.
 *
 * Every number in the file is checked against the size of the file before it is used. The order:
 * sizes of file and header, the header's text (number of values: a parsed value takes about 40
 * times the bytes of its text, so 20 MB of brackets and commas would take a gigabyte), JSON (cJSON
 * limits recursion), each entry, then all entries together: names distinct, bytes covered once; the
 * checksum last. Invariant: on return either the content is
 * complete, or it is empty and err holds one line that begins with the path. cJSON keeps numbers as
 * doubles, so whole numbers above 2^53 are refused rather than rounded.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/tensor_files/safetensors.h"

enum {
    LENGTH_BYTES = 8, // the header, which begins with a '{', follows
    META_MAX = 1024,
    VALUES_PER_TENSOR =
        16, // an object, its three fields, at most four sizes, two offsets; and more
};

typedef struct Span {
    size_t begin, end; // the tensor's bytes, counted from the end of the header
    SafeEntry *entry;
} Span;

// ---- the file's bytes -------------------------------------------------------------------------

static int read_bytes(FILE *file, void *to, size_t bytes, Error *err) {
    if (fread(to, 1, bytes, file) == bytes) return 0;
    if (ferror(file)) return error_set(err, STATUS_USAGE, "cannot read: %s", strerror(errno));
    return error_set(err, STATUS_USAGE, "the file became shorter while read");
}

// Recognizes other formats of weights by the file's first bytes: the error names the format and how
// to convert it. Returns 0 for an unknown format.
static int check_foreign(const unsigned char *first, Error *err) {
    if (first[LENGTH_BYTES] == '{') return 0;
    const char *what = NULL;
    if (memcmp(first, "PK\3\4", 4) == 0) what = "a zip archive";
    if (first[0] == 0x80 && first[1] >= 2 && first[1] <= 5) what = "a pickle";
    if (!what) return 0;
    return error_set(err, STATUS_USAGE,
                     "is %s, as torch.save writes it; save it with safetensors: python3 -c 'import "
                     "torch; from safetensors.torch import save_file; "
                     "w = torch.load(\"IN\", map_location=\"cpu\", weights_only=True); "
                     "save_file({k: v.contiguous() for k, v in w.items()}, \"OUT.safetensors\")'",
                     what);
}

// Reads N and the N bytes of header into *header (free() it; a NUL follows them).
static int read_header(FILE *file, size_t file_bytes, char **header, size_t *length, Error *err) {
    unsigned char first[LENGTH_BYTES + 1] = {0}; // zeros where the file is shorter
    (void)!fread(first, 1, sizeof first, file);
    if (check_foreign(first, err) != 0) return -1;
    if (file_bytes < LENGTH_BYTES)
        return error_set(err, STATUS_USAGE, "too short for a safetensors file: %zu byte%s",
                         file_bytes, format_s(file_bytes));
    rewind(file);
    if (read_bytes(file, first, LENGTH_BYTES, err) != 0) return -1;
    uint64_t n;
    memcpy(&n, first, sizeof n);
    if (n > SAFE_HEADER_MAX)
        return error_set(err, STATUS_USAGE,
                         "not a safetensors file: a header of %llu bytes (%d are the most)",
                         (unsigned long long)n, SAFE_HEADER_MAX);
    if (n > file_bytes - LENGTH_BYTES)
        return error_set(err, STATUS_USAGE,
                         "the file is truncated: a header of %llu bytes is announced, %zu follow",
                         (unsigned long long)n, file_bytes - LENGTH_BYTES);
    *header = memory_zalloc((size_t)n + 1);
    *length = (size_t)n;
    return read_bytes(file, *header, (size_t)n, err);
}

// ---- one entry of the header ------------------------------------------------------------------

static int read_whole(const cJSON *item, const char *what, size_t *value, Error *err) {
    const double largest = 9007199254740992; // 2^53: beyond it doubles skip whole numbers
    double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(number >= 0 && number <= largest) || number != (double)(uint64_t)number)
        return error_set(err, STATUS_USAGE,
                         "%s holds something else than a whole number up to 2^53", what);
    *value = (size_t)number;
    return 0;
}

static int read_dtype(const cJSON *item, SafeEntry *entry, Error *err) {
    const char *text = cJSON_GetStringValue(item);
    if (!text) return error_set(err, STATUS_USAGE, "dtype is not a string");
    for (int dtype = DTYPE_F32; dtype <= DTYPE_I64; dtype++) {
        entry->dtype = (DType)dtype;
        if (strcmp(text, dtype_name(entry->dtype)) == 0) return 0;
    }
    return error_set(err, STATUS_USAGE,
                     "dtype %.20s is not supported (F32 and I64 are): save "
                     "model.float()",
                     text);
}

static int read_shape(const cJSON *shape, SafeEntry *entry, Error *err) {
    if (!cJSON_IsArray(shape)) return error_set(err, STATUS_USAGE, "shape is not an array");
    entry->ndim = 0;
    entry->bytes = dtype_bytes(entry->dtype);
    const cJSON *item;
    cJSON_ArrayForEach(item, shape) {
        if (entry->ndim == TENSOR_MAX_DIMS)
            return error_set(err, STATUS_USAGE, "more than %d dimensions", TENSOR_MAX_DIMS);
        size_t size = 0;
        if (read_whole(item, "shape", &size, err) != 0) return -1;
        entry->shape[entry->ndim++] = size;
        if (__builtin_mul_overflow(entry->bytes, size, &entry->bytes))
            return error_set(err, STATUS_USAGE, "the product of its shape overflows");
    }
    return 0;
}

static int read_offsets(const cJSON *offsets, const SafeEntry *entry, Span *span, Error *err) {
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2)
        return error_set(err, STATUS_USAGE, "data_offsets is not an array of two numbers");
    if (read_whole(cJSON_GetArrayItem(offsets, 0), "data_offsets", &span->begin, err) != 0 ||
        read_whole(cJSON_GetArrayItem(offsets, 1), "data_offsets", &span->end, err) != 0)
        return -1;
    if (span->end >= span->begin && span->end - span->begin == entry->bytes) return 0;
    Tensor tensor = tensor_make(NULL, entry->dtype, entry->ndim, entry->shape, NULL);
    return error_set(err, STATUS_USAGE,
                     "data_offsets [%zu, %zu) do not match shape %s %s (%zu bytes)", span->begin,
                     span->end, tensor_describe(&tensor).text, dtype_name(entry->dtype),
                     entry->bytes);
}

static int read_entry(const cJSON *item, SafeEntry *entry, Span *span, Error *err) {
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    // Exactly these three fields, so none is a duplicate.
    if (!dtype || !shape || !offsets || cJSON_GetArraySize(item) != 3)
        return error_set(err, STATUS_USAGE, "is not an object of dtype, shape and data_offsets");
    if (strlen(item->string) >= sizeof entry->name)
        return error_set(err, STATUS_USAGE, "the name is longer than %zu bytes",
                         sizeof entry->name - 1);
    for (const char *c = item->string; *c; c++) // a control character would break printed tables
        if ((unsigned char)*c < ' ' || *c == 127)
            return error_set(err, STATUS_USAGE, "the name holds a control character");
    strcpy(entry->name, item->string);
    span->entry = entry;
    if (read_dtype(dtype, entry, err) != 0 || read_shape(shape, entry, err) != 0) return -1;
    return read_offsets(offsets, entry, span, err);
}

static int read_meta(const cJSON *object, SafeTensors *content, Error *err) {
    if (!cJSON_IsObject(object) || content->meta)
        return error_set(err, STATUS_USAGE, "__metadata__ is not one object of strings");
    size_t capacity = (size_t)cJSON_GetArraySize(object);
    if (capacity > META_MAX)
        return error_set(err, STATUS_USAGE, "__metadata__ has %zu strings, %d are the most",
                         capacity, META_MAX);
    content->meta = memory_zalloc(capacity * sizeof(SafeMeta));
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        SafeMeta *meta = &content->meta[content->meta_count];
        const char *value = cJSON_GetStringValue(item);
        if (!value)
            return error_set(err, STATUS_USAGE, "__metadata__: %.60s is not a string",
                             item->string);
        if (strlen(item->string) >= sizeof meta->key || strlen(value) >= sizeof meta->value)
            return error_set(err, STATUS_USAGE,
                             "__metadata__: %.60s is too long (%zu bytes at most)", item->string,
                             sizeof meta->value - 1);
        strcpy(meta->key, item->string);
        strcpy(meta->value, value);
        content->meta_count++;
    }
    return 0;
}

// ---- all entries together ---------------------------------------------------------------------

static int by_name(const void *a, const void *b) {
    return strcmp(((const Span *)a)->entry->name, ((const Span *)b)->entry->name);
}

// Orders by offset; an empty tensor comes before another one at the same offset.
static int by_place(const void *a, const void *b) {
    const Span *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static int check_names(Span *spans, size_t count, Error *err) {
    qsort(spans, count, sizeof *spans, by_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(spans[i - 1].entry->name, spans[i].entry->name) == 0)
            return error_set(err, STATUS_USAGE, "tensor %s is there twice", spans[i].entry->name);
    return 0;
}

// Checks that the tensors cover [0, bytes) without overlap or hole. 0, or -1 with err filled.
static int check_spans(Span *spans, size_t count, size_t bytes, Error *err) {
    qsort(spans, count, sizeof *spans, by_place);
    size_t covered = 0;
    for (size_t i = 0; i < count; i++) {
        if (spans[i].begin < covered)
            return error_set(err, STATUS_USAGE, "tensor %s overlaps tensor %s",
                             spans[i].entry->name, spans[i - 1].entry->name);
        if (spans[i].begin > covered)
            return error_set(err, STATUS_USAGE, "%zu byte%s before tensor %s belong%s to no tensor",
                             spans[i].begin - covered, format_s(spans[i].begin - covered),
                             spans[i].entry->name, spans[i].begin - covered == 1 ? "s" : "");
        covered = spans[i].end;
    }
    if (covered > bytes)
        return error_set(err, STATUS_USAGE,
                         "the file is truncated: the tensors need %zu bytes, %zu follow the header",
                         covered, bytes);
    if (covered < bytes)
        return error_set(err, STATUS_USAGE, "%zu byte%s at the end belong%s to no tensor",
                         bytes - covered, format_s(bytes - covered),
                         bytes - covered == 1 ? "s" : "");
    return 0;
}

// Fills content except the entries' data; spans[i] is entry i's range of bytes.
static int read_entries(const cJSON *root, SafeTensors *content, Span *spans, Error *err) {
    const cJSON *item;
    cJSON_ArrayForEach(item, root) {
        if (strcmp(item->string, "__metadata__") == 0) {
            if (read_meta(item, content, err) != 0) return -1;
            continue;
        }
        SafeEntry *entry = &content->entries[content->count];
        if (read_entry(item, entry, &spans[content->count], err) != 0)
            return error_prefix(err, "tensor %.*s", (int)sizeof entry->name, item->string);
        content->count++;
    }
    return 0;
}

// Checks that the text can be parsed in bounded memory (number of tensors and values), and has no
// raw control character in a string (a zero would end a C string). A NUL follows the text.
static int check_text(const char *header, size_t length, Error *err) {
    size_t values = 0, objects = 0;
    bool in_string = false;
    for (const char *at = header, *end = header + length; at < end; at++) {
        if (in_string && ((unsigned char)*at < ' ' || strncmp(at, "\\u0000", 6) == 0))
            return error_set(err, STATUS_USAGE,
                             "a name or text in the header holds a control character");
        if (in_string && *at == '\\' && at + 1 < end) {
            at++; // an escaped quote does not close the string
        } else if (*at == '"') {
            in_string = !in_string;
        } else if (!in_string) {
            values += *at != '\0' && strchr(",:[{", *at) != NULL;
            objects += *at == '{';
        }
    }
    // A header was read: NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker)
    const size_t others = 1 + (strstr(header, "\"__metadata__\"") != NULL); // the root is one, too
    if (objects > SAFE_TENSORS_MAX + others)
        return error_set(err, STATUS_USAGE, "has %zu tensors, %d are the most that are read",
                         objects - others, SAFE_TENSORS_MAX);
    if (values > (size_t)VALUES_PER_TENSOR * SAFE_TENSORS_MAX)
        return error_set(err, STATUS_USAGE, "the header has %zu values, %d are the most", values,
                         VALUES_PER_TENSOR * SAFE_TENSORS_MAX);
    return 0;
}

// Sets *root, also if its text is not an object: the caller deletes it.
static int parse_header(const char *header, size_t length, cJSON **root, Error *err) {
    const char *end = NULL;
    if (check_text(header, length, err) != 0) return -1;
    // Text after the object (last argument) is checked below: it must be spaces.
    *root = cJSON_ParseWithLengthOpts(header, length + 1, &end, false);
    if (!*root)
        return error_set(err, STATUS_USAGE, "the header is not valid JSON, at byte %zu of it",
                         end ? (size_t)(end - header) : 0);
    size_t trailing = strspn(end, " \t\r\n");
    // A root has a header: NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
    if (header[0] == '{' && cJSON_IsObject(*root) && end + trailing == header + length) return 0;
    return error_set(err, STATUS_USAGE, "the header is not one JSON object");
}

// Checks the checksum in the metadata, of the header (with zeros for its digits) and the tensors'
// bytes. Overwrites the digits in the header. 0, or -1 with err filled.
static int check_digits(char *header, size_t length, const SafeTensors *content, size_t data_bytes,
                        Error *err) {
    const char *said = safetensors_meta(content, "crc32");
    if (!said) return 0;
    char *place = safetensors_find_digits(header, length), digits[SAFE_DIGITS + 1];
    if (!place) return error_set(err, STATUS_USAGE, "the file is damaged: its crc32 is %s", said);
    memset(place, '0', SAFE_DIGITS);
    uLong crc = crc32_z(0, (const Bytef *)header, length);
    if (data_bytes > 0) crc = crc32_z(crc, content->buffer, data_bytes);
    snprintf(digits, sizeof digits, "%08x", (unsigned)crc);
    if (strcmp(said, digits) == 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "the file is damaged: its checksum is %s, the header says %s", digits, said);
}

// with_data: also reads the tensors' bytes. 0, or -1 with err filled.
static int read_content(FILE *file, const cJSON *root, size_t data_bytes, bool with_data,
                        SafeTensors *content, Error *err) {
    size_t capacity = (size_t)cJSON_GetArraySize(root);
    content->entries = memory_zalloc(capacity * sizeof(SafeEntry));
    Span *spans = memory_zalloc(capacity * sizeof *spans);
    int status = read_entries(root, content, spans, err);
    if (status == 0) status = check_names(spans, content->count, err);
    if (status == 0) status = check_spans(spans, content->count, data_bytes, err);
    if (status == 0 && with_data) {
        content->buffer = memory_zalloc(data_bytes);
        status = read_bytes(file, content->buffer, data_bytes, err);
    }
    for (size_t i = 0; status == 0 && with_data && i < content->count; i++)
        spans[i].entry->data = (const char *)content->buffer + spans[i].begin;
    free(spans);
    return status;
}

static int read_file(const char *path, bool with_data, SafeTensors *content, Error *err) {
    *content = (SafeTensors){0};
    size_t file_bytes = 0, length = 0;
    FILE *file = file_open_stream(path, &file_bytes, err);
    if (!file) return -1;
    char *header = NULL;
    int status = read_header(file, file_bytes, &header, &length, err);
    cJSON *root = NULL;
    if (status == 0) status = parse_header(header, length, &root, err);
    size_t data_bytes = file_bytes - LENGTH_BYTES - length; // of a file with a whole header
    if (status == 0) status = read_content(file, root, data_bytes, with_data, content, err);
    if (status == 0 && with_data) status = check_digits(header, length, content, data_bytes, err);
    cJSON_Delete(root);
    free(header);
    fclose(file);
    if (status == 0) return 0;
    safetensors_free(content);
    return error_prefix(err, "%s", path);
}

int safetensors_read(const char *path, SafeTensors *content, Error *err) {
    return read_file(path, true, content, err);
}

int safetensors_read_header(const char *path, SafeTensors *content, Error *err) {
    return read_file(path, false, content, err);
}
