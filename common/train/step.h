/* step.h: the resources of a training step: strategy, optimizer, tape, the batch on the device, the
 * loss and its readback. The five lines of a step are train_step in trainer.c.
 *
 * A step is asynchronous: it is enqueued on the device, and its loss is read back later. While the
 * device computes step k, the host enqueues step k + 1, and reads the loss of step k back after
 * that. In separate files: 16-bit precision and its loss scale (step_scaler.c), gradient
 * accumulation (step_accumulated.c), replaying a captured step (step_graph.h).
 */
#ifndef COMMON_TRAIN_STEP_H
#define COMMON_TRAIN_STEP_H

#include "common/base/profile.h"
#include "common/nn/clip.h"
#include "common/nn/grad_scaler.h"
#include "common/tensor_files/checkpoint.h"
#include "common/train/hits.h"

enum { LATE_LOSSES = 2 }; // number of steps whose losses are kept

typedef struct Step {
    const TrainConfig *config;
    Strategy *strategy;   // the module to run, and the reduction of its gradients
    Optimizer *optimizer; // not owned
    Tape *tape;           // of plain steps and, between steps, of evaluation
    BatchInput *input;    // the batch, on the device
    Loss loss;

    GradScaler scaler; // used with --amp fp16 only
    double scale;      // the factor of the last step's loss in backward; 1 without a scaler
    GradClip *clip;    // NULL: without --clip-grad-norm
    uint64_t skipped;  // number of skipped optimizer steps

    float *total;  // [1], device memory: the sum of the micro-batches' losses
    int64_t *hits; // [accumulate_steps, hits_size], device memory: the current step's correct
                   // predictions (hits.h) in each micro-batch
    Readback *losses[LATE_LOSSES];    // a float each; step k at index k mod LATE_LOSSES
    Readback *late_hits[LATE_LOSSES]; // copies of `hits`, at the same indices
    size_t steps;                     // number of enqueued steps
} Step;

// Returns a step on batches of the set of at most `capacity` samples. profile is the tape's.
Step *step_open(const TrainConfig *config, Strategy *strategy, Optimizer *optimizer,
                Profile *profile, const Dataset *set, size_t capacity);
void step_close(Step *step); // NULL is fine

// Enqueues the copy of a batch to the device. The last batch's host memory may be overwritten after
// batch_input_wait.
void step_send_batch(Step *step, const Batch *batch);
// Two of the five lines. step_loss computes batch->outputs' loss and hits, and the root of
// backward; step_optimize updates the parameters with learning rate lr. Both return 0, or -1 with
// err filled.
int step_loss(Step *step, Tape *tape, BatchLoss *batch, Error *err);
int step_optimize(Step *step, Tape *tape, double lr, Error *err);
// Ends a step after all its work is enqueued: releases the batch's slot and starts the readback of
// the loss ([1], device memory).
void step_done(Step *step, const float *loss);
// Waits for the loss of the last step (back 0) or the step before that (1) and returns it. Sets
// hits [hits_size] to that step's, summed over its micro-batches, unless hits is NULL.
double step_read_loss(const Step *step, int back, double *hits);

// step_scaler.c: clips the gradients (--clip-grad-norm) and runs the optimizer's step. With fp16
// unscales the gradients first, and skips the step if one is not finite. 0, or -1 with err filled.
int step_scaler_optimize(Step *step, double lr, Error *err);
// Save and load the precision and the scaler's state in a checkpoint. Without saved state the
// scaler keeps its defaults. Loading returns 0, or -1 with err filled if the state is invalid.
void step_scaler_save(const Step *step, Progress *progress);
int step_scaler_load(Step *step, const Progress *progress, Error *err);

// Runs train_step's step in step->config->accumulate_steps micro-batches (step_accumulated.c). 0,
// or -1 with err filled.
int step_run_accumulated(Step *step, Tape *tape, double lr, Error *err);

#endif
