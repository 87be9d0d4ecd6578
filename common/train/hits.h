/* hits.h: how many predictions are right.
 *
 * What is counted depends on the data. For samples with a label, and for tokens, it is one number:
 * how many were predicted right. For a dense set it is a confusion matrix of pixels, [classes,
 * classes + 1]: a row for each true class, a column for each predicted one, and the last column for
 * pixels without a prediction. For a regression nothing is counted. The counts of several batches,
 * parts of a batch or ranks add up, and exactly, because they are whole numbers.
 */
#ifndef COMMON_TRAIN_HITS_H
#define COMMON_TRAIN_HITS_H

#include "common/train/batch_loss.h"

size_t hits_size(const Dataset *set); // numbers: 1, classes * (classes + 1), or 0

// Counts the outputs of a batch that is on the tape. hits: [hits_size], device memory, not the
// tape's scratch. It is asked of the device and not waited for.
void hits_count(Tape *tape, const Dataset *set, const BatchLoss *loss, int64_t *hits);

typedef struct Score {
    double accuracy; // the share of samples, tokens or not ignored pixels; NaN for regression
    double mean_iou; // hits_mean_iou; NaN but for a dense set
    double bits;     // the loss of a token in bits; NaN for data that are no text
} Score;
// The score of so many samples, whose hits are hits[hits_size] and whose mean loss is `loss`.
Score hits_score(const Dataset *set, const double *hits, double samples, double loss);
#define SCORE_NONE ((Score){.accuracy = NAN, .mean_iou = NAN, .bits = NAN})
// The perplexity of text, exp(loss): the model is as unsure as if it guessed among so many tokens.
double hits_perplexity(Score score);
// Returns the mean over the classes of intersection over union. The intersection of a class counts
// the pixels that are of it and predicted so, its union those that are of it or predicted so.
// Classes without a union are left out; NaN if no class has one.
double hits_mean_iou(const double *confusion, size_t classes);

// Finds the class predicted for each pixel, or -1 for none: logits [n, classes, h, w] on the
// device, predicted [n, h, w] on the host.
void hits_predict(Tape *tape, const Tensor *logits, int32_t *predicted);

#endif
