/* fuzz_text.c: text as training data: [kind][context], then a text file (even kind) or the val.bin
 * of a folder of token files with a valid train.bin (odd kind).
 */
#include "common/data/formats.h"
#include "tests/fuzz/fuzz.h"

static void use(const Dataset *set) {
    size_t size = dataset_sample_size(set);
    int64_t *tokens = memory_zalloc(size * sizeof *tokens);
    CHECK(set->count >= 1 && set->tokens, "%zu samples", set->count);
    dataset_sample_tokens(set, set->count - 1, tokens);
    dataset_sample_labels(set, set->count - 1, NULL, 0, tokens);
    for (size_t i = 0; i < size; i++)
        CHECK(tokens[i] >= 0 && tokens[i] < (int64_t)set->classes, "token %d", (int)tokens[i]);
    free(tokens);
}

// Opens the file as the val.bin of a folder.
static int open_as_tokens(const char *path, const DataOptions *shape, DataSource *source,
                          Error *err) {
    static const uint16_t GOOD[300] = {0, 255, 7};
    static const char *const NAMES[] = {"train.bin", "val.bin"};
    char folder[32], good[64];
    int file = fuzz_file((const uint8_t *)GOOD, sizeof GOOD, good);
    fuzz_folder(folder, NAMES, (const char *const[]){good, path}, 2);
    int failed = text_open_tokens(folder, shape, source, err);
    fuzz_folder_remove(folder, NAMES, 2);
    close(file);
    return failed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    DataOptions shape = {.context = data[1] == 0 ? 1 : data[1]};
    char path[64];
    int file = fuzz_file(data + 2, size - 2, path);
    Error err = {0};
    DataSource *source = memory_zalloc(sizeof *source);
    int failed = data[0] % 2 ? open_as_tokens(path, &shape, source, &err)
                             : text_open_file(path, &shape, source, &err);
    if (failed) fuzz_check_error(&err);
    if (!failed) use(&source->train);
    if (!failed) use(&source->test);
    dataset_close(source);
    close(file);
    return 0;
}
