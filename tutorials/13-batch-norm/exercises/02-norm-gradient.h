/* 02-norm-gradient.h: backward through a batch norm of all ranks' rows.
 *
 * Forward was y = weight * xhat + bias with xhat = (x - mean) * invstd, where mean and invstd are
 * those of the n rows of all ranks. As every row has a part in the mean and in the variance, each
 * row's gradient depends on all rows:
 *
 *     dx = weight * invstd * (dy - A / n - xhat * B / n)
 *
 * with A the sum of dy and B the sum of dy * xhat, both over all rows of *all ranks*. The two sums
 * travel together, in one all-reduce.
 *
 * The gradient of bias is A and that of weight is B, but only this rank's part of them is wanted
 * here: DistributedDataParallel will reduce the parameters' gradients after backward, these too.
 */
#ifndef TUTORIALS_NORM_GRADIENT_H
#define TUTORIALS_NORM_GRADIENT_H

#include "ddp/group/process_group.h"

typedef struct NormRows {
    size_t count;       // rows of this rank; may be 0
    size_t all_rows;    // n: those of all ranks
    const double *dy;   // [count] gradients of the outputs
    const double *xhat; // [count] what forward has normalised
    double weight, invstd;
} NormRows;

typedef struct NormGradients {
    double *dx;            // [count], to be filled
    double dweight, dbias; // to be set: this rank's parts
} NormGradients;

// Called by all ranks. Returns 0, or -1 with err filled.
int norm_gradient(ProcessGroup *group, const NormRows *rows, NormGradients *to, Error *err);

#endif
