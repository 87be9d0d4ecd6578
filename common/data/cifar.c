/* cifar.c: reading CIFAR-10's binary batches.
 *
 * The published files hold 10,000 records each. Any number of whole records is accepted, so a
 * smaller set works; an incomplete record is an error: the file is truncated.
 */
#include "common/data/cifar.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"

enum { CIFAR_PIXELS = 3 * 32 * 32, CIFAR_RECORD = 1 + CIFAR_PIXELS, CIFAR_CLASSES = 10 };
enum { CIFAR_TRAIN_FILES = 5, CIFAR_PATH = 1100 };

// Batches 1 to 5 are the training set, batch 0 is the test set. Too long a path becomes "", which
// no file has.
static void cifar_path(const char *folder, size_t batch, char *path) {
    char name[48] = "test_batch.bin";
    if (batch > 0) snprintf(name, sizeof name, "data_batch_%zu.bin", batch);
    if (snprintf(path, CIFAR_PATH, "%s/%s", folder, name) >= CIFAR_PATH) path[0] = '\0';
}

static bool cifar_any(const char *folder) {
    for (size_t batch = 0; batch <= CIFAR_TRAIN_FILES; batch++) {
        char path[CIFAR_PATH];
        struct stat st;
        cifar_path(folder, batch, path);
        if (stat(path, &st) == 0) return true;
    }
    return false;
}

static void cifar_subfolder(const char *folder, char *path) {
    if (snprintf(path, CIFAR_PATH, "%s/cifar-10-batches-bin", folder) >= CIFAR_PATH) path[0] = '\0';
}

bool cifar_present(const char *folder) {
    char subfolder[CIFAR_PATH];
    cifar_subfolder(folder, subfolder);
    return cifar_any(folder) || cifar_any(subfolder);
}

static int cifar_count(const char *path, size_t *count, Error *err) {
    size_t bytes = 0;
    int fd = file_open(path, &bytes, err);
    if (fd < 0) return -1;
    close(fd);
    if (bytes == 0 || bytes % CIFAR_RECORD != 0)
        return error_set(err, STATUS_USAGE,
                         "%s: CIFAR-10 batch is truncated: %zu byte%s, no multiple of the %d of "
                         "a record",
                         path, bytes, format_s(bytes), CIFAR_RECORD);
    *count = bytes / CIFAR_RECORD;
    return 0;
}

// Reads `count` records into the set, from sample `first` on.
static int cifar_read(FILE *file, const char *path, Dataset *set, size_t first, size_t count,
                      Error *err) {
    for (size_t i = 0; i < count; i++) {
        uint8_t label;
        uint8_t *pixels = set->bytes + (first + i) * CIFAR_PIXELS;
        if (fread(&label, 1, 1, file) != 1 || fread(pixels, CIFAR_PIXELS, 1, file) != 1)
            return error_set(err, STATUS_USAGE, "%s: cannot read record %zu of %zu", path, i,
                             count);
        if (label >= CIFAR_CLASSES)
            return error_set(err, STATUS_USAGE, "%s: label %u of record %zu is outside 0..%d", path,
                             label, i, CIFAR_CLASSES - 1);
        set->labels[first + i] = label;
    }
    return 0;
}

// Reads the batches [begin, end) in order.
static int cifar_open_split(const char *folder, size_t begin, size_t end, Dataset *set,
                            Error *err) {
    size_t counts[1 + CIFAR_TRAIN_FILES] = {0};
    char path[CIFAR_PATH];
    *set = (Dataset){.shape = {3, 32, 32}, .classes = CIFAR_CLASSES};
    for (size_t batch = begin; batch < end; batch++) {
        cifar_path(folder, batch, path);
        if (cifar_count(path, &counts[batch], err) != 0) return -1;
        set->count += counts[batch];
    }
    set->bytes = memory_zalloc(set->count * CIFAR_PIXELS);
    set->labels = memory_zalloc(set->count * sizeof *set->labels);

    size_t first = 0;
    for (size_t batch = begin; batch < end; batch++) {
        cifar_path(folder, batch, path);
        FILE *file = file_open_stream(path, NULL, err);
        if (!file) return -1;
        int rc = cifar_read(file, path, set, first, counts[batch], err);
        fclose(file);
        if (rc != 0) return -1;
        first += counts[batch];
    }
    return 0;
}

int cifar_open(const char *folder, DataSource *source, Error *err) {
    char subfolder[CIFAR_PATH];
    cifar_subfolder(folder, subfolder);
    if (!cifar_any(folder)) folder = subfolder;
    if (cifar_open_split(folder, 1, 1 + CIFAR_TRAIN_FILES, &source->train, err) != 0) return -1;
    return cifar_open_split(folder, 0, 1, &source->test, err);
}
