/* run_open.h: opens and closes a run of the trainer. */
#ifndef COMMON_TRAIN_RUN_OPEN_H
#define COMMON_TRAIN_RUN_OPEN_H

#include "common/train/run.h"

// Validates the configuration, allocates the run's resources, and restores the checkpoint of a
// resumed run. Precondition: the caller has set config, options, data, job and strategy. Returns 0,
// or -1 with err filled. In either case run_close follows.
int run_open(Run *run, Error *err);
void run_close(Run *run);

#endif
