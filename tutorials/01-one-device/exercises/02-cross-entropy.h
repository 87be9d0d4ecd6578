/* 02-cross-entropy.h: the loss of a batch.
 *
 * A network gives every class a number (a logit). The loss of one row with label y is
 *
 *     -log( exp(logit[y]) / (exp(logit[0]) + exp(logit[1]) + ...) )
 *
 * and the loss of a batch is the sum of its rows' losses divided by `divisor`, the number of rows
 * in the mean. With one device it is the batch's own number of rows. In the next steps it is that
 * of a larger batch, of which these rows are only a part: so the divisor is an argument.
 *
 * exp(1000) is infinite, even for a double; the loss of logits 1000 and 999 is not. And exp(-1000)
 * is 0, even for a double; the loss of logits 1000 and 0 with label 1 is 1000, and not infinite.
 */
#ifndef TUTORIALS_CROSS_ENTROPY_H
#define TUTORIALS_CROSS_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

// logits [rows, classes], labels [rows], each from 0 to classes - 1. Without rows the loss is 0,
// for any divisor.
double cross_entropy(const float *logits, const int64_t *labels, size_t rows, size_t classes,
                     double divisor);

#endif
