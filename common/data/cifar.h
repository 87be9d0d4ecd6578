/* cifar.h: CIFAR-10's binary batches (Krizhevsky, 2009): records of 3,073 bytes, a label and then
 * 1,024 red, 1,024 green and 1,024 blue values of a 32x32 image, row-major.
 */
#ifndef COMMON_DATA_CIFAR_H
#define COMMON_DATA_CIFAR_H

#include "common/data/dataset.h"

// Is one of the six files in the folder, or in its subfolder cifar-10-batches-bin?
bool cifar_present(const char *folder);
// Fills train and test but for mean and std. Returns 0, or -1 with err filled; the caller closes
// the source in both cases.
int cifar_open(const char *folder, DataSource *source, Error *err);

#endif
