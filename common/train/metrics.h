/* metrics.h: loss and score of a data set that the ranks divide.
 *
 * Metrics are sums of losses and of hits (hits.h). Each rank accumulates over its share; one
 * all-reduce and a division give the result of a single rank for any division of the samples, exact
 * except for the rounding of the losses.
 */
#ifndef COMMON_TRAIN_METRICS_H
#define COMMON_TRAIN_METRICS_H

#include "common/train/hits.h"

typedef struct Evaluation {
    double loss; // mean over all samples, tokens or (dense) pixels that are not ignored
    Score score;
} Evaluation;

typedef struct Metrics {
    const Dataset *set;
    size_t sum_count;
    double *sums; // [sum_count]: see metrics.c
} Metrics;

Metrics metrics_open(const Dataset *set);
void metrics_close(Metrics *metrics);
// Adds a batch's loss and hits; its outputs are the tape's.
void metrics_add(Metrics *metrics, Tape *tape, const Batch *batch, const BatchLoss *loss);
// Sums over the ranks. Precondition: every sample was added once, on one rank. 0 or -1.
int metrics_reduce(Metrics *metrics, Strategy *strategy, Error *err);
Evaluation metrics_result(const Metrics *metrics);

#endif
