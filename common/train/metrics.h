/* metrics.h: how good the outputs are, over a whole data set that several ranks share.
 *
 * Everything is a sum: of losses, of correct samples, and for pixels a confusion matrix. Each rank
 * adds up its own part; one sum over the ranks and a division at the end give exactly what one rank
 * would have found, however unevenly the samples were shared (but for the rounding of the losses).
 */
#ifndef COMMON_TRAIN_METRICS_H
#define COMMON_TRAIN_METRICS_H

#include "common/train/batch_loss.h"

typedef struct Evaluation {
    double loss;     // a mean over all samples or, of a dense set, all pixels that are not ignored
    double accuracy; // of samples or pixels; NaN for regression
    double mean_iou; // NaN but for a dense set
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

// confusion[classes, classes + 1] counts pixels: row truth, column prediction, the last column for
// none. The intersection of a class counts the pixels that are of it and predicted so, its union
// those that are or are predicted so. The mean of their ratios, of classes with a union; NaN: none.
double metrics_mean_iou(const double *confusion, size_t classes);
// Adds `count` pixels; those with a negative truth are ignored.
void metrics_count_pixels(double *confusion, size_t classes, const int64_t *truth,
                          const int32_t *predicted, size_t count);

// The class predicted for each pixel, -1: none. logits [n, classes, h, w] -> host [n, h, w].
void metrics_predict(Tape *tape, const Tensor *logits, int32_t *predicted);

#endif
