/* hits.h: counts of correct predictions, and the scores computed from them.
 *
 *     data                  hits
 *     labels, tokens        [1] the number of correct predictions
 *     pixels (dense)        [classes, classes + 1] confusion matrix: a row per true class, a column
 *                           per predicted class, the last column: no prediction
 *     regression            [0]
 *
 * Hits are integers: sums over batches, micro-batches and ranks are exact.
 */
#ifndef COMMON_TRAIN_HITS_H
#define COMMON_TRAIN_HITS_H

#include "common/train/loss.h"

size_t hits_size(const Dataset *set); // number of elements of hits

// Enqueues counting the hits of a batch on the tape, after loss_forward: sets loss->hits, allocated
// from the tape if it is NULL. Returns without effect if the loss has counted them.
void hits_count(Tape *tape, const Dataset *set, BatchLoss *loss);

typedef struct Score {
    double accuracy; // fraction of samples, tokens or pixels (not ignored); NaN for regression
    double mean_iou; // hits_mean_iou; NaN except for dense sets
    double bits;     // loss per token in bits; NaN except for text
} Score;
// Returns the score of `samples` samples with hits[hits_size] and mean loss `loss`.
Score hits_score(const Dataset *set, const double *hits, double samples, double loss);
#define SCORE_NONE ((Score){.accuracy = NAN, .mean_iou = NAN, .bits = NAN})
// Returns the perplexity of text, exp(loss).
double hits_perplexity(Score score);
// Returns the mean over the classes of intersection / union. Intersection: pixels of the class that
// are predicted as the class; union: pixels of the class or predicted as the class. Classes with an
// empty union are excluded; NaN if all are.
double hits_mean_iou(const double *confusion, size_t classes);

// Sets each pixel's predicted class, -1: none. logits: [n, classes, h, w] on the device; predicted:
// [n, h, w] on the host. Blocks.
void hits_predict(Tape *tape, const Tensor *logits, int32_t *predicted);

#endif
