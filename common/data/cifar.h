/* cifar.h: CIFAR-10's binary batches (Krizhevsky, 2009): records of 3,073 bytes, a label and then
 * 1,024 red, 1,024 green and 1,024 blue values of a 32x32 image, row-major.
 */
#ifndef COMMON_DATA_CIFAR_H
#define COMMON_DATA_CIFAR_H

#include "common/data/dataset.h"

// Whether one of the six files is in the folder or its subfolder cifar-10-batches-bin.
bool cifar_present(const char *folder);
// Fills train and test except mean and std. Returns 0, or -1 with err filled; in both cases the
// caller closes the source.
int cifar_open(const char *folder, DataSource *source, Error *err);

#endif
