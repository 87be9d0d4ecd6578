/* fuzz_cifar.c: CIFAR-10's binary batches. The first byte selects the one of six files whose
 * contents follow; each other file has one record of zeros.
 */
#include "common/data/dataset.h"
#include "tests/fuzz/fuzz.h"

enum { FILES = 6, RECORD = 3073 };
static const char *const NAMES[FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                         "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

static void use(const Dataset *set) {
    float sample[RECORD - 1];
    for (size_t i = 0; i < set->count; i++) {
        CHECK(set->labels[i] >= 0 && set->labels[i] < 10, "label %d", (int)set->labels[i]);
        dataset_sample(set, i, NULL, 0, sample);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint8_t zeros[RECORD] = {0};
    if (size < 1) return 0;
    char given[64], blank[64], folder[32];
    int given_file = fuzz_file(data + 1, size - 1, given);
    int blank_file = fuzz_file(zeros, sizeof zeros, blank);
    const char *paths[FILES];
    for (size_t i = 0; i < FILES; i++) paths[i] = i < data[0] % (FILES + 1) ? given : blank;
    fuzz_folder(folder, NAMES, paths, FILES);

    Error err = {0};
    DataSource *source = dataset_open(folder, 0, &err);
    if (!source) fuzz_check_error(&err);
    if (source) use(&source->train);
    if (source) use(&source->test);
    dataset_close(source);
    fuzz_folder_remove(folder, NAMES, FILES);
    close(given_file);
    close(blank_file);
    return 0;
}
