/* fuzz_pixels.c: a picture with a label for each pixel: [ignored label][u16 n, little-endian] [n
 * bytes of NAME.ppm][NAME.pgm]. The training and the test set are the same two files.
 */
#include "common/data/dataset.h"
#include "tests/fuzz/fuzz.h"

enum { FILES = 4 };
static const char *const NAMES[FILES] = {"train/a.ppm", "train/a.pgm", "test/a.ppm", "test/a.pgm"};

static void use(const Dataset *set) {
    size_t size = dataset_sample_size(set), labels = dataset_label_size(set);
    float *sample = memory_zalloc(size * sizeof *sample);
    CHECK(set->count == 1 && set->dense && set->classes >= 1, "%zu samples", set->count);
    dataset_sample(set, 0, NULL, 0, sample);
    for (size_t i = 0; i < labels; i++)
        CHECK(set->labels[i] >= LABEL_IGNORE && set->labels[i] < (int64_t)set->classes, "label %d",
              (int)set->labels[i]);
    free(sample);
}

static void folders(const char *folder, bool make) {
    for (int i = 0; i < FILES; i += 2) {
        char *below = memory_format("%s/%.*s", folder, (int)strcspn(NAMES[i], "/"), NAMES[i]);
        CHECK((make ? mkdir(below, 0700) : rmdir(below)) == 0, "%s", below);
        free(below);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    int ignored = data[0];
    size_t picture = data[1] + 256u * data[2];
    data += 3, size -= 3;
    if (picture > size) picture = size;
    char folder[32], paths[2][64];
    int first = fuzz_file(data, picture, paths[0]);
    int second = fuzz_file(data + picture, size - picture, paths[1]);
    fuzz_folder(folder, NULL, NULL, 0);
    folders(folder, true);
    for (int i = 0; i < FILES; i++) {
        char *link = memory_format("%s/%s", folder, NAMES[i]);
        CHECK(symlink(paths[i % 2], link) == 0, "cannot link %s", link);
        free(link);
    }

    Error err = {0};
    DataSource *source =
        dataset_open_with(&(DataOptions){.name = folder, .ignore_label = ignored}, &err);
    if (!source) fuzz_check_error(&err);
    if (source) use(&source->train);
    if (source) use(&source->test);
    dataset_close(source);
    for (int i = 0; i < FILES; i++) {
        char *link = memory_format("%s/%s", folder, NAMES[i]);
        unlink(link);
        free(link);
    }
    folders(folder, false);
    rmdir(folder);
    close(first);
    close(second);
    return 0;
}
