/* 02-norm-gradient.h: backward through a batch norm of all ranks' rows.
 *
 * Forward was y = weight * xhat + bias with xhat = (x - mean) * invstd, where mean and invstd are
 * those of the n rows of all ranks. As the mean and the variance depend on every row, each row's
 * gradient depends on all rows:
 *
 *     dx = weight * invstd * (dy - A / n - xhat * B / n)
 *
 * with A the sum of dy and B the sum of dy * xhat, both over all rows of *all ranks*. One
 * all-reduce computes both sums.
 *
 * The gradient of bias is A and that of weight is B, but return only this rank's part of them:
 * DistributedDataParallel reduces the gradients of all parameters after backward.
 */
#ifndef TUTORIALS_NORM_GRADIENT_H
#define TUTORIALS_NORM_GRADIENT_H

#include "ddp/group/process_group.h"

typedef struct NormRows {
    size_t count;       // rows of this rank; may be 0
    size_t all_rows;    // n: rows of all ranks
    const double *dy;   // [count] gradients of the outputs
    const double *xhat; // [count] the normalised rows of forward
    double weight, invstd;
} NormRows;

typedef struct NormGradients {
    double *dx;            // [count], to be filled
    double dweight, dbias; // to be set: this rank's parts
} NormGradients;

// Called by all ranks. Returns 0, or -1 with err filled.
int norm_gradient(ProcessGroup *group, const NormRows *rows, NormGradients *to, Error *err);

#endif
