/* fuzz_idx.c: IDX files, plain or gzipped: [u16 n, little-endian][n bytes of images][labels].
 *
 * The training and the test set are the same two files, so that valid files are read completely.
 */
#include "common/data/dataset.h"
#include "tests/fuzz/fuzz.h"

enum { FILES = 4 };
static const char *const NAMES[FILES] = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte",
                                         "train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"};

static void use(const Dataset *set) {
    size_t size = dataset_sample_size(set);
    float *sample = memory_zalloc(size * sizeof *sample);
    for (size_t i = 0; i < set->count; i++) {
        CHECK((size_t)set->labels[i] < set->classes, "label %d", (int)set->labels[i]);
        if (i == 0 || i + 1 == set->count) dataset_sample(set, i, NULL, 0, sample);
    }
    free(sample);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t images = data[0] + 256u * data[1];
    data += 2, size -= 2;
    if (images > size) images = size;
    char image_path[64], label_path[64], folder[32];
    int image_file = fuzz_file(data, images, image_path);
    int label_file = fuzz_file(data + images, size - images, label_path);
    fuzz_folder(folder, NAMES, (const char *[]){image_path, image_path, label_path, label_path},
                FILES);

    Error err = {0};
    DataSource *source = dataset_open(folder, 0, &err);
    if (!source) fuzz_check_error(&err);
    if (source) use(&source->train);
    if (source) use(&source->test);
    dataset_close(source);
    fuzz_folder_remove(folder, NAMES, FILES);
    close(image_file);
    close(label_file);
    return 0;
}
