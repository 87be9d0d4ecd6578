/* 03-best-model.h: is this the best model so far? All ranks must give the same answer.
 *
 * After an epoch every rank has tested its own rows: it knows how many, and how many of them were
 * right. The accuracy is that of all rows together. If it is better than the best so far, *best
 * becomes it and *is_best true; rank 0 will save, and all will meet in a barrier. A rank that comes
 * to another answer than the others calls another collective next, and the job hangs. So the answer
 * is computed from numbers that are the same on all ranks.
 *
 * An accuracy that was reached before is not better. Without any rows there is no accuracy, and
 * nothing is best. One collective is enough.
 */
#ifndef TUTORIALS_BEST_MODEL_H
#define TUTORIALS_BEST_MODEL_H

#include "ddp/group/process_group.h"

// right of this rank's `rows` rows were answered right. *best is the same on every rank, -1 in the
// beginning. Returns 0, or -1 with err filled.
int best_model(ProcessGroup *group, size_t right, size_t rows, double *best, bool *is_best,
               Error *err);

#endif
