/* metrics.h: how good the outputs are, over a whole data set that several ranks share.
 *
 * Everything is a sum: of losses, and of how many predictions are right (hits.h). Each rank
 * adds up its own part; one sum over the ranks and a division at the end give exactly what one rank
 * would have found, however unevenly the samples were shared (but for the rounding of the losses).
 */
#ifndef COMMON_TRAIN_METRICS_H
#define COMMON_TRAIN_METRICS_H

#include "common/train/hits.h"

typedef struct Evaluation {
    double loss; // a mean over all samples, tokens or, of a dense set, pixels that are not ignored
    Score score;
} Evaluation;

typedef struct Metrics {
    const Dataset *set;
    size_t sum_count;
    double *sums; // [sum_count]: see metrics.c
} Metrics;

Metrics metrics_open(const Dataset *set);
void metrics_close(Metrics *metrics);
// Adds a batch and its outputs, which are on the tape.
void metrics_add(Metrics *metrics, Tape *tape, const Batch *batch, const BatchLoss *loss);
// Sums over the ranks, which must have seen every sample once.
int metrics_reduce(Metrics *metrics, Strategy *strategy, Error *err);
Evaluation metrics_result(const Metrics *metrics);

#endif
