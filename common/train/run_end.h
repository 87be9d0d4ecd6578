/* run_end.h: the summary and the trace, written after a run's last step. */
#ifndef COMMON_TRAIN_RUN_END_H
#define COMMON_TRAIN_RUN_END_H

#include "common/train/run.h"

// Writes both. Collective. Returns 0, or -1 with err filled.
int run_end(Run *run, const Evaluation *evaluation, Error *err);

#endif
