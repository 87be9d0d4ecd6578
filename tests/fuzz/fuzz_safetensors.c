/* fuzz_safetensors.c: safetensors files. A file that was read, written and read again has equal
 * contents; and a single file is not accepted as a checkpoint.
 */
#include "common/tensor_files/checkpoint.h"
#include "common/tensor_files/safetensors.h"
#include "tests/fuzz/fuzz.h"

// Checks the strings' lengths, because a sanitizer does not see an overflow into the next field.
static void check_strings(const SafeTensors *content) {
    for (size_t i = 0; i < content->count; i++) {
        const SafeEntry *entry = &content->entries[i];
        CHECK(memchr(entry->name, '\0', sizeof entry->name), "the name of tensor %zu", i);
    }
    for (size_t i = 0; i < content->meta_count; i++) {
        const SafeMeta *meta = &content->meta[i];
        CHECK(memchr(meta->key, '\0', sizeof meta->key), "key %zu", i);
        CHECK(memchr(meta->value, '\0', sizeof meta->value), "value %zu", i);
    }
}

static void check_same(const SafeTensors *a, const SafeTensors *b) {
    CHECK(a->count == b->count, "%zu tensors, then %zu", a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        const SafeEntry *x = &a->entries[i], *y = safetensors_find(b, x->name);
        CHECK(y && x->dtype == y->dtype && x->ndim == y->ndim && x->bytes == y->bytes,
              "tensor %zu has changed", i);
        CHECK(memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape) == 0, "shape %zu", i);
        CHECK(x->bytes == 0 || memcmp(x->data, y->data, x->bytes) == 0, "the data of %zu", i);
    }
}

// Removes the checksum, which the writer adds again.
static void drop_checksum(SafeTensors *content) {
    size_t kept = 0;
    for (size_t i = 0; i < content->meta_count; i++)
        if (strcmp(content->meta[i].key, "crc32") != 0) content->meta[kept++] = content->meta[i];
    content->meta_count = kept;
}

static void write_and_read(SafeTensors *content) {
    char folder[32];
    Error err = {0};
    SafeTensors again;
    fuzz_folder(folder, NULL, NULL, 0);
    char *path = memory_format("%s/copy", folder);
    drop_checksum(content);
    if (safetensors_write(path, content, &err) != 0) error_exit(&err);
    CHECK(safetensors_read(path, &again, &err) == 0, "the copy: %s", err.message);
    check_same(content, &again);
    safetensors_free(&again);
    fuzz_folder_remove(folder, (const char *[]){"copy"}, 1);
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int file = fuzz_file(data, size, path);
    Error err = {0}, why = {0};
    SafeTensors content;
    Progress progress;
    if (safetensors_read(path, &content, &err) != 0) {
        fuzz_check_error(&err);
        CHECK(!content.entries && !content.buffer && !content.meta, "an error left something");
    } else {
        check_strings(&content);
        write_and_read(&content);
        safetensors_free(&content);
    }
    if (safetensors_read_header(path, &content, NULL) == 0) safetensors_free(&content);
    CHECK(checkpoint_check(path, &progress, &why) != CHECKPOINT_WHOLE, "one file is no pair");
    fuzz_check_error(&why);
    close(file);
    return 0;
}
