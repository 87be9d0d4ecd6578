/* step_accumulated.h: gradient accumulation (--accumulate-steps K): a step in K micro-batches of
 * 1/K of the batch's samples, so that K times as many samples fit into a device's memory.
 *
 *     gradients     accumulate; only the last backward reduces them over the ranks (no_sync)
 *     loss          mean over the whole batch, as in PyTorch programs that divide each loss by K
 *     batch norm    statistics of each micro-batch, as in PyTorch
 *
 * Rounding differs from the plain step's: without batch norm gradients agree to a few units of
 * float32's last place (1e-6 of the largest), also between DataParallel and
 * DistributedDataParallel.
 */
#ifndef COMMON_TRAIN_STEP_ACCUMULATED_H
#define COMMON_TRAIN_STEP_ACCUMULATED_H

#include "common/train/step.h"

// Runs train_step's step in step->config->accumulate_steps micro-batches. 0, or -1 with err filled.
int step_run_accumulated(Step *step, Tape *tape, double lr, Error *err);

#endif
