/* hits.h: how many predictions are right.
 *
 * Of samples with a label, or of tokens: one number, those predicted right. Of a dense set: a
 * confusion matrix, [classes, classes + 1], which counts pixels: row truth, column prediction, the
 * last column for none. Of regression: nothing. Those of several batches, parts of a batch or ranks
 * add up, and whole numbers do so exactly.
 */
#ifndef COMMON_TRAIN_HITS_H
#define COMMON_TRAIN_HITS_H

#include "common/train/batch_loss.h"

size_t hits_size(const Dataset *set); // numbers: 1, classes * (classes + 1), or 0

// Counts the outputs of a batch that is on the tape. hits: [hits_size], device memory, not the
// tape's scratch. It is asked of the device and not waited for.
void hits_count(Tape *tape, const Dataset *set, const BatchLoss *loss, int64_t *hits);

typedef struct Score {
    double accuracy; // of samples, tokens, or pixels that are not ignored; NaN for regression
    double mean_iou; // NaN but for a dense set
    double bits;     // of text: of the loss, for each token; NaN for others
} Score;
// hits: [hits_size], of so many samples; loss: their mean loss.
Score hits_score(const Dataset *set, const double *hits, double samples, double loss);
#define SCORE_NONE ((Score){.accuracy = NAN, .mean_iou = NAN, .bits = NAN})
double hits_perplexity(Score score); // of text: exp(loss), among how many tokens it wavers
// Of a confusion matrix. The intersection of a class counts the pixels that are of it and predicted
// so, its union those that are or are predicted so. The mean of their ratios, of classes with a
// union; NaN: none.
double hits_mean_iou(const double *confusion, size_t classes);

// The class predicted for each pixel, -1: none. logits [n, classes, h, w] -> host [n, h, w].
void hits_predict(Tape *tape, const Tensor *logits, int32_t *predicted);

#endif
