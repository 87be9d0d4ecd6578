/* train_step.h: one step of training: batch -> forward -> loss -> backward -> (strategy reduces) ->
 * optimizer.
 *
 * It asks the device for all of it and does not wait: while step k is computed, the host is already
 * asking for step k + 1, and learns the loss of step k afterwards.
 *
 * Precision (--amp): PyTorch's autocast, as far as tape.h says, in evaluation too. With fp16 a
 * GradScaler keeps gradients from vanishing: they are reduced scaled, then unscaled, and if one is
 * not finite, which the host waits to know, the optimizer is skipped. To the optimizer (momentum,
 * AdamW's count) that was no step; to the schedule it was, as in PyTorch programs. The loss that is
 * told is not scaled: where it is not finite, the forward overflowed, which no scale helps.
 *
 * Graphs (--cuda-graph): after a few steps of the usual kind, the work of one step is captured, and
 * from then on replayed in one call, which saves the host the thousand calls that it consists of.
 * What changes between steps is no part of it: the batch (batch_input.h) and the optimizer's
 * numbers (optimizer_begin_step). A batch of another size is computed as usual. In between, the
 * host's view (tape, gradients' state, the strategy's counters) stays as the captured step left it.
 */
#ifndef COMMON_TRAIN_TRAIN_STEP_H
#define COMMON_TRAIN_TRAIN_STEP_H

#include "common/nn/grad_scaler.h"
#include "common/train/batch_loss.h"
#include "common/train/checkpoint.h"
#include "common/train/trainer.h"

typedef struct StepLoss {
    double mean; // as this rank's loss says
    double sum;  // of `count` samples or pixels of this rank
    size_t count;
} StepLoss;

typedef struct TrainStep TrainStep;

// Batches are of the set and of at most `capacity` samples. The optimizer is not owned. profile as
// the tape's.
TrainStep *train_step_create(const TrainConfig *config, Strategy *strategy, Optimizer *optimizer,
                             Profile *profile, const Dataset *set, size_t capacity);
void train_step_close(TrainStep *step); // NULL is fine

// The batch of the last run may be changed now.
void train_step_wait_batch(TrainStep *step);
// Returns 0 when all is asked for, or -1 with err filled.
int train_step_run(TrainStep *step, const Batch *batch, double lr, Error *err);
// The loss of the last run, or the one before it (back: 0 or 1): waits until that is computed.
StepLoss train_step_loss(const TrainStep *step, int back);

Tape *train_step_tape(TrainStep *step); // for evaluation, between two steps
// What the last run's loss was multiplied by for backward; 1 without a scaler.
double train_step_scale(const TrainStep *step);
uint64_t train_step_skipped(const TrainStep *step); // runs that the optimizer took no part in
// What replayed steps moved between devices, which the strategy has not counted.
uint64_t train_step_replayed_bytes(const TrainStep *step);

// The precision and the scaler's state, to and from what a checkpoint keeps. Of one that was made
// without a scaler, the scaler starts anew. -1 with err filled if no scaler can be at that state.
void train_step_save(const TrainStep *step, Progress *progress);
int train_step_load(TrainStep *step, const Progress *progress, Error *err);

#endif
