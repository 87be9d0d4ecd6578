/* trainer.h: the training loop of the three programs: epochs of steps, evaluation, checkpoints,
 * records. One device, DataParallel and DistributedDataParallel differ in the Strategy that a step
 * calls and the Job that the loop around the steps calls.
 */
#ifndef COMMON_TRAIN_TRAINER_H
#define COMMON_TRAIN_TRAINER_H

#include "common/train/job.h"
#include "common/train/setup.h"

typedef struct Step Step; // common/train/step.h

// Runs the configuration: trains, evaluates, writes the outputs. options: for config.json. Returns
// 0, or -1 with err filled (STATUS_FAILED when the loss is not finite or a rank is lost).
int trainer_run(const TrainConfig *config, const Options *options, const DataSource *data, Job *job,
                Error *err);

// Runs a step on the last sent batch (step_send_batch): forward, loss, backward, finish, optimizer.
// tape: step->tape, or a graph's. Returns 0 when the step is enqueued on the device, or -1 with err
// filled.
int train_step(Step *step, Tape *tape, double lr, Error *err);

#endif
