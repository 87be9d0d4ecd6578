/* 03-running-mean.h: batch norm's running mean under DataParallel.
 *
 * While training, batch norm keeps a running mean of its inputs, for later use without a batch.
 * After each forward
 *
 *     running = (1 - momentum) * running + momentum * mean of the rows
 *
 * with PyTorch's momentum 0.1: the *new* mean counts for a tenth. Under DataParallel every device
 * does this with its own rows, on its own copy. Only the first device's copy is the model's; the
 * others' updates are lost. Compute the model's running mean after one step.
 */
#ifndef TUTORIALS_RUNNING_MEAN_H
#define TUTORIALS_RUNNING_MEAN_H

#include <stddef.h>

// values [rows]: one channel's input, a number for each row of the whole batch; rows >= 1.
// The cut is chunk_bounds of common/data/sampler.h.
double running_mean_after(double running, double momentum, const double *values, size_t rows,
                          size_t devices);

#endif
