/* pixel_folder.h: a folder of the user's pictures with a label for every pixel:
 *
 *   DIR/train/NAME.ppm   a picture        DIR/train/NAME.pgm   the labels of its pixels
 *   DIR/test/NAME.ppm                     DIR/test/NAME.pgm
 *
 * A label is the gray value of its pixel: 0, 1, 2, ... are classes. All pictures have one size.
 * Their order is that of their names' bytes, the same on every machine. Files with other endings
 * are ignored.
 */
#ifndef COMMON_DATA_PIXEL_FOLDER_H
#define COMMON_DATA_PIXEL_FOLDER_H

#include "common/data/dataset.h"

// Whether there is a folder DIR/train or DIR/test.
bool pixel_folder_present(const char *folder);
// Fills train and test except mean and std. ignore_label: the gray value that becomes LABEL_IGNORE;
// negative: none. The number of classes is the training set's largest label + 1. Returns 0, or -1
// with err filled; in both cases the caller closes the source.
int pixel_folder_open(const char *folder, int ignore_label, DataSource *source, Error *err);

#endif
