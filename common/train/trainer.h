/* trainer.h: the trainer. Epochs of steps, evaluation, checkpoints, records; written once and
 * driven through a Strategy, so that one device, DataParallel and DistributedDataParallel differ
 * only there.
 */
#ifndef COMMON_TRAIN_TRAINER_H
#define COMMON_TRAIN_TRAINER_H

#include "common/train/setup.h"
#include "common/train/strategy.h"
#include "common/train/train_config.h"

// Trains, evaluates, writes what the configuration asks for. The options table goes into
// config.json. Returns 0, or -1 with err filled (STATUS_FAILED when the loss is NaN or a rank is
// lost).
int trainer_run(const TrainConfig *config, const Options *options, const DataSource *data,
                Strategy *strategy, Error *err);

#endif
