/* evaluation.h: how good the model is on the test split, which the processes share. */
#ifndef COMMON_TRAIN_EVALUATION_H
#define COMMON_TRAIN_EVALUATION_H

#include "common/train/run.h"

// Evaluates between two steps. Collective.
int evaluate_run(Run *run, Evaluation *result, Error *err);
// Every --dump-images epochs, writes pictures of what the model makes of some test images. epoch:
// the one that has just ended, counted from 0.
int evaluation_write_images(Run *run, uint64_t epoch, Error *err);

#endif
