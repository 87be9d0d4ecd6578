/* step.h: the resources of a training step: strategy, optimizer, tape, the batch on the device and
 * the loss. The five lines of a step are train_step in trainer.c.
 *
 * A step is asynchronous: it is enqueued on the device, and its loss is read back later
 * (late_losses.h). In separate files: 16-bit precision and its loss scale (step_scaler.h), gradient
 * accumulation (step_accumulated.c), replaying a captured step (step_graph.h).
 */
#ifndef COMMON_TRAIN_STEP_H
#define COMMON_TRAIN_STEP_H

#include "common/base/profile.h"
#include "common/train/late_losses.h"
#include "common/train/step_scaler.h"
#include "common/train/train_config.h"

typedef struct Step {
    const TrainConfig *config;
    Strategy *strategy;   // the module to run, and the reduction of its gradients
    Optimizer *optimizer; // not owned
    Tape *tape;           // of plain steps and, between steps, of evaluation
    BatchInput *input;    // the batch, on the device
    Loss loss;
    StepScaler scaler;
    LateLosses losses;
} Step;

// Returns a step on batches of the set of at most `capacity` samples. profile is the tape's.
Step *step_open(const TrainConfig *config, Strategy *strategy, Optimizer *optimizer,
                Profile *profile, const Dataset *set, size_t capacity);
void step_close(Step *step); // NULL is fine

// Enqueues the copy of a batch to the device. The last batch's host memory may be overwritten after
// step_wait_batch.
void step_send_batch(Step *step, const Batch *batch);
void step_wait_batch(Step *step);
// Two of the five lines. step_loss computes batch->outputs' loss and hits, and the root of
// backward; step_optimize updates the parameters with learning rate lr. Both return 0, or -1 with
// err filled.
int step_loss(Step *step, Tape *tape, BatchLoss *batch, Error *err);
int step_optimize(Step *step, Tape *tape, double lr, Error *err);
// Ends a step after all its work is enqueued: releases the batch's slot and starts the readback of
// the loss ([1], device memory).
void step_done(Step *step, const float *loss);

// Runs train_step's step in step->config->accumulate_steps micro-batches (step_accumulated.c). 0,
// or -1 with err filled.
int step_run_accumulated(Step *step, Tape *tape, double lr, Error *err);

#endif
