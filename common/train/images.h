/* images.h: pictures of a dense model's input, truth and prediction, side by side. */
#ifndef COMMON_TRAIN_IMAGES_H
#define COMMON_TRAIN_IMAGES_H

#include "common/data/dataset.h"
#include "common/nn/module.h"

enum { IMAGES_SAMPLES = 8 };

// Sets the color of a class; white for LABEL_IGNORE and for no prediction.
void images_color(int64_t label, uint8_t rgb[3]);

// Runs the module in evaluation mode on the first IMAGES_SAMPLES samples of a dense set of bytes.
// Writes FOLDER/images/epoch_0003_sample_00.ppm and so on, each of h rows of 3 w pixels.
// Returns 0, or -1 with err filled.
int images_write(const char *folder, size_t epoch, Module *module, Tape *tape, const Dataset *set,
                 Error *err);

#endif
