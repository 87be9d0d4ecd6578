/* step.h: one step of training, in five lines: forward, loss, backward, finish, optimizer
 * (step_run, at the top of step.c).
 *
 * It asks the device for all of it and does not wait: the loss is known later (late_losses.h). What
 * a plain step does not need is apart: 16 bits and their scaler in step_scaler.h, replaying a step
 * that was captured once in step_graph.h.
 */
#ifndef COMMON_TRAIN_STEP_H
#define COMMON_TRAIN_STEP_H

#include "common/base/profile.h"
#include "common/train/batch_loss.h"
#include "common/train/late_losses.h"
#include "common/train/step_scaler.h"
#include "common/train/train_config.h"

typedef struct Step { // what every step works with
    const TrainConfig *config;
    Strategy *strategy;   // the module that is run, and what finishes its gradients
    Optimizer *optimizer; // not owned
    Tape *tape;           // of plain steps; between two of them, of evaluation
    BatchInput *input;    // the batch, on the device
    StepScaler scaler;
    LateLosses losses;
} Step;

// Batches are of the set and of at most `capacity` samples. profile is for the tape.
Step *step_open(const TrainConfig *config, Strategy *strategy, Optimizer *optimizer,
                Profile *profile, const Dataset *set, size_t capacity);
void step_close(Step *step); // NULL is fine

// Sends a batch to the device; the last one's memory may be changed after step_wait_batch.
void step_send_batch(Step *step, const Batch *batch);
void step_wait_batch(Step *step);
// Takes a step on the batch that was sent last, recorded on this tape, which is step->tape if the
// caller has no better one. Returns 0 when all is asked for, or -1 with err filled.
int step_run(Step *step, Tape *tape, double lr, Error *err);

// Two of the five lines, for other kinds of steps (step_graph.c).
int step_loss(Step *step, Tape *tape, BatchLoss *loss, Error *err);
int step_optimize(Step *step, Tape *tape, double lr, Error *err);
// Ends a step: all that uses the batch has been asked for. loss is [1], in device memory.
void step_done(Step *step, const float *loss);

#endif
