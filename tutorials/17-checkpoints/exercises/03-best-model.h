/* 03-best-model.h: is this the best model so far? All ranks must give the same answer.
 *
 * After an epoch every rank has tested its own rows, and has their number and the number of right
 * answers. The accuracy is that of all ranks' rows together. If it is better than *best, *best is
 * set to it and *is_best to true; then rank 0 saves, and all ranks wait in a barrier. A rank with
 * another answer than the others calls another collective next, and the job hangs. So compute the
 * answer from numbers that are the same on all ranks.
 *
 * An equal accuracy is not better. If no rank has rows there is no accuracy, and *is_best is false.
 * One collective is enough.
 */
#ifndef TUTORIALS_BEST_MODEL_H
#define TUTORIALS_BEST_MODEL_H

#include "ddp/group/process_group.h"

// right: the number of right answers of this rank's `rows` rows. *best is the same on every rank,
// initially -1. Returns 0, or -1 with err filled.
int best_model(ProcessGroup *group, size_t right, size_t rows, double *best, bool *is_best,
               Error *err);

#endif
