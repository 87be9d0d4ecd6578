/* dataset.c: opens a data set by its name, and converts stored samples to floats.
 *
 * The formats have files of their own (idx.c, cifar.c, pixel_folder.c, synthetic.c, shapes.c,
 * text.c). Common to all formats of bytes: mean and standard deviation are computed from the
 * training set and applied to the test set too.
 */
#include "common/data/dataset.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "common/base/rng.h"
#include "common/base/shared_object.h"
#include "common/data/formats.h"

enum { DATASET_PATH = 1000 };

// The moments of one channel, from the histogram of its bytes: exact up to the final roundings.
static void channel_moments(const Dataset *set, size_t channel, float *mean, float *std) {
    size_t histogram[256] = {0};
    size_t plane = set->shape[1] * set->shape[2];
    for (size_t i = 0; i < set->count; i++) {
        const uint8_t *pixels = set->bytes + (i * set->shape[0] + channel) * plane;
        for (size_t p = 0; p < plane; p++) histogram[pixels[p]]++;
    }
    double total = (double)set->count * (double)plane, sum = 0, squares = 0;
    for (size_t b = 0; b < 256; b++) sum += (double)histogram[b] * (double)b;
    double average = sum / total;
    for (size_t b = 0; b < 256; b++)
        squares += (double)histogram[b] * ((double)b - average) * ((double)b - average);
    *mean = (float)(average / 255);
    // A constant channel is not scaled.
    *std = squares > 0 ? (float)(sqrt(squares / total) / 255) : 1;
}

static int check_folder(const char *folder, Error *err) {
    struct stat st;
    if (strlen(folder) > DATASET_PATH)
        return error_set(err, STATUS_USAGE, "the path of the data set has more than %d bytes",
                         DATASET_PATH);
    if (stat(folder, &st) != 0) {
        const char *why = strerror(errno);
        size_t best = SIZE_MAX;
        const OptionWord near = options_nearest(folder, "digits|synthetic|shapes|text", 0, &best);
        return error_set(err, STATUS_USAGE,
                         "%s: %s (a data set is 'digits', 'synthetic[:SHAPE]', 'shapes[:SHAPE]', "
                         "'text', a FILE.txt or a folder)%s%.*s%s",
                         format_quote(folder).text, why, near.start ? "; did you mean " : "",
                         near.length, near.start ? near.start : "", near.start ? "?" : "");
    }
    if (S_ISDIR(st.st_mode)) return 0;
    return error_set(err, STATUS_USAGE,
                     "%s: not a folder; name the folder that the files are in, or a FILE.txt",
                     folder);
}

static int open_folder(const char *folder, const DataOptions *options, DataSource *source,
                       Error *err) {
    static const struct Format {
        const char *name;
        bool (*present)(const char *folder);
        OpenData *open;
    } formats[] = {
        {"tokens", text_tokens_present, text_open_tokens},
        {"idx", idx_present, idx_open},
        {"cifar10", cifar_present, cifar_open},
        {"pixels", pixel_folder_present, pixel_folder_open},
    };
    if (check_folder(folder, err) != 0) return -1;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!formats[i].present(folder)) continue;
        snprintf(source->name, sizeof source->name, "%s", formats[i].name);
        return formats[i].open(folder, options, source, err);
    }
    return error_set(
        err, STATUS_USAGE,
        "%s: no data set in it: neither IDX files (train-images-idx3-ubyte[.gz], ...) nor CIFAR-10 "
        "batches (data_batch_1.bin, ...) nor pictures with labels (train/NAME.ppm and "
        "train/NAME.pgm, ...) nor tokens (train.bin and val.bin)",
        folder);
}

// Opens the shipped data `name`, in the first of the folders that has them.
static int open_shipped(const char *name, const DataOptions *options, DataSource *source,
                        Error *err) {
    const bool text = strcmp(name, "text") == 0;
    char own[DATASET_PATH]; // the folder of the program or library that contains this code
    const char *data = getenv("DDPC_DATA");
    const char *near = shared_object_own_folder(own, sizeof own) ? own : NULL;
    const char *const places[][2] = {
        {data, ""},
        {near, "/../../common/data"}, // build/bin or build/lib
        {near, "/../share/ddpc"},     // PREFIX/bin or PREFIX/lib, also after a move
        {near, "/../../share/ddpc"},  // PREFIX/lib/ARCHITECTURE
        {DDPC_SOURCE_DIR, "/common/data"},
        {DDPC_DATA_DIR, ""}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!places[i][0]) continue;
        char *path = memory_format("%s%s/%s%s", places[i][0], places[i][1], name,
                                   text ? "/shakespeare.txt.gz" : "");
        const bool found = text ? file_exists("%s", path) : idx_present(path);
        int failed = found ? (text ? text_open_file : idx_open)(path, options, source, err) : -1;
        free(path);
        if (found) return failed;
    }
    return error_set(
        err, STATUS_USAGE,
        "the data of '%s' are neither in $DDPC_DATA/%s, nor beside the program or its library, nor "
        "in %s/common/data/%s, nor in %s/%s",
        name, name, DDPC_SOURCE_DIR, name, DDPC_DATA_DIR, name);
}

DataSource *dataset_open(const char *name, uint64_t seed, Error *err) {
    return dataset_open_with(&(DataOptions){.name = name, .seed = seed, .ignore_label = -1}, err);
}

DataSource *dataset_open_with(const DataOptions *options, Error *err) {
    CHECK(options->name, "dataset_open_with: options->name is NULL");
    DataSource *source = memory_zalloc(sizeof *source);
    const char *name = options->name;
    const size_t word = strcspn(name, ":"); // "shapes:32x32"
    DataOptions full = *options;
    if (full.context == 0) full.context = DATASET_CONTEXT;
    source->loss_floor = NAN;
    OpenData *open = open_folder;
    snprintf(source->name, sizeof source->name, "%.*s", (int)word, name);
    if (strcmp(name, "digits") == 0 || strcmp(name, "text") == 0) {
        open = open_shipped;
    } else if (strcmp(source->name, "synthetic") == 0) {
        open = synthetic_open;
    } else if (strcmp(source->name, "shapes") == 0) {
        open = shapes_open;
    } else if (format_ends_with(name, ".txt") || format_ends_with(name, ".txt.gz")) {
        open = text_open_file;
        strcpy(source->name, "text");
    }
    if (open(name, &full, source, err) != 0) {
        dataset_close(source);
        return NULL;
    }
    for (size_t c = 0; source->train.bytes && c < source->train.shape[0]; c++)
        channel_moments(&source->train, c, &source->train.mean[c], &source->train.std[c]);
    memcpy(source->test.mean, source->train.mean, sizeof source->test.mean);
    memcpy(source->test.std, source->train.std, sizeof source->test.std);
    return source;
}

static void free_set(Dataset *set) {
    free(set->bytes);
    free(set->floats);
    free(set->labels);
    free(set->targets);
    free(set->tokens);
}

void dataset_close(DataSource *source) {
    if (!source) return;
    free_set(&source->train);
    free_set(&source->test);
    free(source->characters);
    free(source);
}

size_t dataset_sample_size(const Dataset *set) {
    return set->shape[0] * set->shape[1] * set->shape[2];
}

// The offset of the crop in the padded image, and whether it is mirrored.
typedef struct View {
    size_t down, right; // from 0 to 2 pad, in pixels; pad is the identity
    size_t pad;
    bool flip;
} View;

static View draw_view(const Augment *augment, size_t epoch, size_t index) {
    // Four draws to a sample, 2^32 samples to an epoch.
    uint64_t draw = ((uint64_t)epoch << 34) + ((uint64_t)index << 2);
    uint64_t places = 2 * (uint64_t)augment->crop_pad + 1;
    View view = {.pad = augment->crop_pad};
    view.down = (size_t)rng_below(augment->seed, RNG_STREAM_AUGMENT, draw, places);
    view.right = (size_t)rng_below(augment->seed, RNG_STREAM_AUGMENT, draw + 1, places);
    view.flip = augment->flip && rng_below(augment->seed, RNG_STREAM_AUGMENT, draw + 2, 2) == 1;
    return view;
}

static float normalise(uint8_t byte, float mean, float std) {
    return ((float)byte / 255.0f - mean) / std;
}

// The index of the image's pixel that the view has at (y, x); SIZE_MAX outside of the image.
static size_t view_source(const View *view, size_t height, size_t width, size_t y, size_t x) {
    // Above and left of the image these wrap around to huge numbers, also outside.
    size_t row = y + view->down - view->pad;
    size_t column = (view->flip ? width - 1 - x : x) + view->right - view->pad;
    return row < height && column < width ? row * width + column : SIZE_MAX;
}

void dataset_sample(const Dataset *set, size_t index, const Augment *augment, size_t epoch,
                    float *out) {
    CHECK(index < set->count, "sample %zu of %zu", index, set->count);
    const size_t height = set->shape[1], width = set->shape[2], plane = height * width;
    const size_t size = dataset_sample_size(set);
    CHECK(!set->tokens, "sample %zu of a text has tokens, not floats", index);
    if (set->floats) {
        memcpy(out, set->floats + index * size, size * sizeof *out);
        return;
    }
    View view = {.pad = 0};
    if (augment) view = draw_view(augment, epoch, index);
    for (size_t c = 0; c < set->shape[0]; c++, out += plane) {
        const uint8_t *bytes = set->bytes + index * size + c * plane;
        const float mean = set->mean[c], std = set->std[c];
        if (!augment) {
            for (size_t p = 0; p < plane; p++) out[p] = normalise(bytes[p], mean, std);
            continue;
        }
        // The padding is black as in torchvision, which pads before it normalises: byte 0.
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < width; x++) {
                size_t source = view_source(&view, height, width, y, x);
                out[y * width + x] = normalise(source == SIZE_MAX ? 0 : bytes[source], mean, std);
            }
    }
}

// Copies `count` tokens of the stream from `first` on.
static void copy_tokens(const Dataset *set, size_t first, size_t count, int64_t *out) {
    CHECK(first + count <= set->token_count, "tokens %zu.. of %zu", first, set->token_count);
    for (size_t i = 0; i < count; i++) out[i] = set->tokens[first + i];
}

void dataset_sample_tokens(const Dataset *set, size_t index, int64_t *out) {
    copy_tokens(set, index * set->shape[0], set->shape[0], out);
}

bool dataset_has_labels(const Dataset *set) {
    return set->labels || set->tokens;
}

size_t dataset_label_size(const Dataset *set) {
    if (set->tokens) return set->shape[0];
    return set->dense ? set->shape[1] * set->shape[2] : 1;
}

void dataset_sample_labels(const Dataset *set, size_t index, const Augment *augment, size_t epoch,
                           int64_t *out) {
    CHECK(index < set->count, "sample %zu of %zu", index, set->count);
    size_t size = dataset_label_size(set), height = set->shape[1], width = set->shape[2];
    if (set->tokens) {
        copy_tokens(set, index * size + 1, size, out);
        return;
    }
    const int64_t *labels = set->labels + index * size;
    if (!set->dense || !augment || set->floats) {
        memcpy(out, labels, size * sizeof *out);
        return;
    }
    View view = draw_view(augment, epoch, index);
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++) {
            size_t source = view_source(&view, height, width, y, x);
            out[y * width + x] = source == SIZE_MAX ? LABEL_IGNORE : labels[source];
        }
}
