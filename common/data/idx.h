/* idx.h: MNIST's file format, plain or gzipped: big-endian magic 00 00 type ndim, then ndim sizes
 * of 32 bits, then the values, row-major (LeCun, Cortes, Burges, "The MNIST database").
 *
 * A folder holds train-images, train-labels, t10k-images and t10k-labels, each with -idx3-ubyte
 * (labels -idx1-ubyte) or .idx3-ubyte, and .gz or not. Images are [count, h, w] in a file named
 * idx3, [count, c, h, w] in one named idx4, and [count, w] in one named idx2.
 */
#ifndef COMMON_DATA_IDX_H
#define COMMON_DATA_IDX_H

#include "common/data/dataset.h"

bool idx_present(const char *folder); // whether it has any of the four files
// Fills train and test except mean and std. Returns 0, or -1 with err filled; in both cases the
// caller closes the source.
int idx_open(const char *folder, DataSource *source, Error *err);

#endif
