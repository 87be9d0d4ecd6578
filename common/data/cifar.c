/* cifar.c: CIFAR-10's binary batches (Krizhevsky, 2009): records of 3,073 bytes, a label and then
 * 1,024 red, 1,024 green and 1,024 blue values of a 32x32 image, row-major.
 *
 * The published files hold 10,000 records each. Any number of whole records is accepted, so a
 * smaller set works; an incomplete record is an error: the file is truncated.
 */
#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/data/formats.h"

enum { CIFAR_PIXELS = 3 * 32 * 32, CIFAR_RECORD = 1 + CIFAR_PIXELS, CIFAR_CLASSES = 10 };
enum { CIFAR_TRAIN_FILES = 5 };
static const char SUBFOLDER[] = "/cifar-10-batches-bin";

static bool has_batches(const char *folder, const char *subfolder) {
    bool found = file_exists("%s%s/test_batch.bin", folder, subfolder);
    for (int batch = 1; batch <= CIFAR_TRAIN_FILES && !found; batch++)
        found = file_exists("%s%s/data_batch_%d.bin", folder, subfolder, batch);
    return found;
}

bool cifar_present(const char *folder) {
    return has_batches(folder, "") || has_batches(folder, SUBFOLDER);
}

// Appends `count` records to the set.
static int read_records(FILE *file, size_t count, Dataset *set, Error *err) {
    set->bytes = memory_grow(set->bytes, set->count + count, CIFAR_PIXELS);
    set->labels = memory_grow(set->labels, set->count + count, sizeof *set->labels);
    for (size_t i = 0; i < count; i++) {
        uint8_t label, *pixels = set->bytes + set->count * CIFAR_PIXELS;
        if (fread(&label, 1, 1, file) != 1 || fread(pixels, CIFAR_PIXELS, 1, file) != 1)
            return error_set(err, STATUS_USAGE, "cannot read record %zu of %zu", i, count);
        if (label >= CIFAR_CLASSES)
            return error_set(err, STATUS_USAGE, "label %u of record %zu is outside 0..%d", label, i,
                             CIFAR_CLASSES - 1);
        set->labels[set->count++] = label;
    }
    return 0;
}

static int append_batch(const char *path, Dataset *set, Error *err) {
    size_t bytes = 0;
    FILE *file = file_open_stream(path, &bytes, err);
    if (!file) return -1;
    int failed = 0;
    if (bytes == 0 || bytes % CIFAR_RECORD != 0)
        failed = error_set(err, STATUS_USAGE,
                           "CIFAR-10 batch is truncated: %zu byte%s, no multiple of the %d of a "
                           "record",
                           bytes, format_s(bytes), CIFAR_RECORD);
    if (!failed) failed = read_records(file, bytes / CIFAR_RECORD, set, err);
    fclose(file);
    return failed ? error_prefix(err, "%s", path) : 0;
}

int cifar_open(const char *folder, const DataOptions *options, DataSource *source, Error *err) {
    (void)options;
    const char *subfolder = has_batches(folder, "") ? "" : SUBFOLDER;
    int failed = 0;
    source->train = source->test = (Dataset){.shape = {3, 32, 32}, .classes = CIFAR_CLASSES};
    for (int batch = 1; batch <= CIFAR_TRAIN_FILES + 1 && !failed; batch++) {
        const bool test = batch > CIFAR_TRAIN_FILES;
        char *path = test ? memory_format("%s%s/test_batch.bin", folder, subfolder)
                          : memory_format("%s%s/data_batch_%d.bin", folder, subfolder, batch);
        failed = append_batch(path, test ? &source->test : &source->train, err);
        free(path);
    }
    return failed;
}
