/* dataset.h: samples in memory, as they lie in their files, and how one becomes floats.
 *
 * dataset_open understands: "digits" (shipped: 1,797 handwritten 8x8 digits, 1,500 to train on), a
 * folder with MNIST-style IDX files (plain or .gz), CIFAR-10 binary batches or pictures with labels
 * of their pixels (pixel_folder.h), "synthetic[:SHAPE]" (a random teacher with noise: regression
 * "synthetic:10:5", classification "synthetic:3x32x32:10", an optional sample count
 * "synthetic:3x32x32:10@2048"), whose loss floor is known, and "shapes[:HxW[@COUNT]]" (images with
 * a label for every pixel).
 */
#ifndef COMMON_DATA_DATASET_H
#define COMMON_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

// The label of a pixel that counts neither for the loss nor for the metrics.
enum { LABEL_IGNORE = -1 };

typedef struct Dataset {
    size_t count;
    size_t shape[3];    // one sample: channels, height, width (a vector: its length, 1, 1)
    size_t classes;     // 0: regression
    size_t target_size; // regression: floats per target
    // Either bytes or floats, and either labels or targets; the other is NULL. The set's memory.
    uint8_t *bytes; // [count, c, h, w]
    float *floats;
    int64_t *labels; // [count], or [count, h, w] if dense
    float *targets;  // [count, target_size]
    bool dense;      // every pixel has a label, from 0 to classes - 1 or LABEL_IGNORE
    // value = (byte / 255 - mean[channel]) / std[channel], for bytes
    float mean[4], std[4];
} Dataset;

typedef struct DataSource {
    char name[32]; // "digits", "idx", "cifar10", "pixels", "synthetic", "shapes"
    Dataset train, test;
    double loss_floor; // synthetic: the noise's own loss; NaN elsewhere
} DataSource;

// Random crop (after zero-padding by `crop_pad` pixels) and horizontal flip of training samples.
// Pure functions of (seed, epoch, sample index). For bytes only: floats are copied as they are. A
// dense set's labels move with their pixels; a pixel from outside the image gets LABEL_IGNORE.
typedef struct Augment {
    size_t crop_pad; // 0: no crop
    bool flip;
    uint64_t seed;
} Augment;

// Opens a source. The shipped digits are found in $DDPC_DATA, beside the executable, or in the
// source tree that built it. NULL with err filled: one line that names the file and what is wrong
// (missing, truncated, wrong magic, sizes that disagree, a label out of range).
DataSource *dataset_open(const char *name, uint64_t seed, Error *err);
// As dataset_open, for a folder of pictures with labels: pixels whose label is ignore_label, a gray
// value, do not count. With a negative one all pixels count, as for dataset_open.
DataSource *dataset_open_ignoring(const char *name, uint64_t seed, int ignore_label, Error *err);
void dataset_close(DataSource *source);

size_t dataset_sample_size(const Dataset *set); // floats per sample
// Writes sample `index` as floats, [c, h, w]. augment may be NULL.
void dataset_sample(const Dataset *set, size_t index, const Augment *augment, size_t epoch,
                    float *out);
size_t dataset_label_size(const Dataset *set); // labels per sample: 1, or h * w if dense
// Writes the sample's label or labels, augmented as dataset_sample augments its pixels.
void dataset_sample_labels(const Dataset *set, size_t index, const Augment *augment, size_t epoch,
                           int64_t *out);

#endif
