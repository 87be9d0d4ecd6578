/* pixel_folder.h: a folder of one's own pictures, in which every pixel has a label:
 *
 *   DIR/train/NAME.ppm   a picture        DIR/train/NAME.pgm   the labels of its pixels
 *   DIR/test/NAME.ppm                     DIR/test/NAME.pgm
 *
 * A label is the gray value of its pixel: 0, 1, 2, ... are classes. All pictures have one size.
 * They are taken in the order of their names, byte by byte, so every machine has the same order.
 * Files with other endings are left alone.
 */
#ifndef COMMON_DATA_PIXEL_FOLDER_H
#define COMMON_DATA_PIXEL_FOLDER_H

#include "common/data/dataset.h"

// Is there a folder DIR/train or DIR/test?
bool pixel_folder_present(const char *folder);
// Fills train and test but for mean and std. ignore_label: the gray value of pixels that do not
// count (LABEL_IGNORE from then on); negative: all count. There are as many classes as the largest
// label of the training set says. Returns 0, or -1 with err filled; the caller closes the source in
// both cases.
int pixel_folder_open(const char *folder, int ignore_label, DataSource *source, Error *err);

#endif
