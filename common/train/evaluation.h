/* evaluation.h: loss and score of the model on the test split, which the processes divide. */
#ifndef COMMON_TRAIN_EVALUATION_H
#define COMMON_TRAIN_EVALUATION_H

#include "common/train/run.h"

// Evaluates the model between two steps. Collective. 0, or -1 with err filled.
int evaluate_run(Run *run, Evaluation *result, Error *err);
// Writes pictures of the model's predictions of some test images, every --dump-images epochs.
// epoch: the number of the epoch that has ended, from 0. 0, or -1 with err filled.
int evaluation_write_images(Run *run, uint64_t epoch, Error *err);

#endif
