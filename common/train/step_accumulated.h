/* step_accumulated.h: a step in several parts (--accumulate-steps K), each of 1/K of the batch's
 * samples, so that K times as many fit into a device's memory.
 *
 * The gradients of the parts add up, and only the last backward reduces them over the ranks
 * (PyTorch's no_sync). The loss is the mean over the whole batch, as PyTorch programs have it that
 * divide each part's loss by K. Batch norm sees the parts one by one, as there.
 *
 * A sum over K parts rounds in other places than one over the batch: without batch norm the
 * gradients are the plain step's to a few units of float32's last place (1e-6 of the largest), and
 * so are DataParallel's and DistributedDataParallel's among each other.
 */
#ifndef COMMON_TRAIN_STEP_ACCUMULATED_H
#define COMMON_TRAIN_STEP_ACCUMULATED_H

#include "common/train/step.h"

// Takes a step as step_run does, in step->config->accumulate_steps parts.
int step_run_accumulated(Step *step, Tape *tape, double lr, Error *err);

#endif
