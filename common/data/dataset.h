/* dataset.h: samples in memory, in the format of their files, and their conversion to floats.
 *
 * dataset_open takes: "digits" (shipped: 1,797 handwritten 8x8 digits, 1,500 to train on), a
 * folder with MNIST-style IDX files (plain or .gz), CIFAR-10 binary batches or pictures with labels
 * of their pixels, "synthetic[:SHAPE]" (a random teacher with noise: regression "synthetic:10:5",
 * classification "synthetic:3x32x32:10", an optional sample count "synthetic:3x32x32:10@2048"),
 * whose loss floor is known, "shapes[:HxW[@COUNT]]" (images with a label for every pixel), "text"
 * (shipped: eight plays by Shakespeare), a text file (its name ends in .txt), or a folder with
 * token files.
 */
#ifndef COMMON_DATA_DATASET_H
#define COMMON_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

// The label of pixels that the loss and the metrics ignore.
enum { LABEL_IGNORE = -1 };

typedef struct Dataset {
    size_t count;
    size_t shape[3];    // one sample: channels, height, width (a vector or text: its length, 1, 1)
    size_t classes;     // 0: regression; text: the vocabulary
    size_t target_size; // regression: floats per target
    // Bytes, floats or tokens; with bytes and floats also labels or targets. The others are NULL.
    // The set owns them.
    uint8_t *bytes; // [count, c, h, w]
    float *floats;
    int64_t *labels; // [count], or [count, h, w] if dense
    float *targets;  // [count, target_size]
    // Text: sample i is tokens [i T, (i + 1) T) and their successors, where T is shape[0].
    uint16_t *tokens; // [token_count]
    size_t token_count;
    bool dense; // every pixel has a label, from 0 to classes - 1 or LABEL_IGNORE
    // value = (byte / 255 - mean[channel]) / std[channel], for bytes
    float mean[4], std[4];
} Dataset;

typedef struct DataSource {
    char name[32]; // "digits", "idx", "cifar10", "pixels", "synthetic", "shapes", "text", "tokens"
    Dataset train, test;
    double loss_floor; // synthetic: the minimal expected loss, of the noise; otherwise NaN
    // Text: the character of each token; otherwise NULL and 0.
    uint32_t *characters; // [character_count], Unicode
    size_t character_count;
} DataSource;

// Random crop (after zero-padding by `crop_pad` pixels) and horizontal flip of training samples.
// Pure functions of (seed, epoch, sample index). Only for bytes: floats are copied unchanged. A
// dense set's labels are cropped and flipped with the pixels; a padded pixel gets LABEL_IGNORE.
typedef struct Augment {
    size_t crop_pad; // 0: no crop
    bool flip;
    uint64_t seed;
} Augment;

// Opens a source. Returns NULL with err filled: one line that names the file and its fault
// (missing, truncated, wrong magic, different sizes, a label out of range). The shipped data are
// searched for in $DDPC_DATA, beside the executable or the shared library, in the source tree, and
// in the installation's folder.
DataSource *dataset_open(const char *name, uint64_t seed, Error *err);
// The same with the options of the kinds of data.
typedef struct DataOptions {
    const char *name;
    uint64_t seed;
    int ignore_label;  // folder of pictures: the gray value that is ignored; negative: none
    size_t context;    // text: tokens of a sample (0: DATASET_CONTEXT)
    size_t vocabulary; // text: the model's, at least the data's (0: the data's)
} DataOptions;
enum { DATASET_CONTEXT = 64 };
DataSource *dataset_open_with(const DataOptions *options, Error *err);
void dataset_close(DataSource *source);

size_t dataset_sample_size(const Dataset *set); // floats, or tokens, per sample
// Writes sample `index` of bytes or floats as floats: out[c, h, w]. augment may be NULL.
void dataset_sample(const Dataset *set, size_t index, const Augment *augment, size_t epoch,
                    float *out);
// Writes the tokens of a sample of text: out[T].
void dataset_sample_tokens(const Dataset *set, size_t index, int64_t *out);
bool dataset_has_labels(const Dataset *set);   // false: targets
size_t dataset_label_size(const Dataset *set); // labels per sample: 1; h * w if dense; text: T
// Writes the sample's labels, augmented as dataset_sample augments its pixels.
void dataset_sample_labels(const Dataset *set, size_t index, const Augment *augment, size_t epoch,
                           int64_t *out);

#endif
