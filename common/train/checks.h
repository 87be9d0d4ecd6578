/* checks.h: what is looked at before the first step, so that a run that cannot end well does not
 * begin. Each returns 0, or -1 with err filled (STATUS_USAGE).
 */
#ifndef COMMON_TRAIN_CHECKS_H
#define COMMON_TRAIN_CHECKS_H

#include "common/train/checkpoint.h"
#include "common/train/trainer.h"

// Refuses options that exclude each other or lack one that they need, options that were given and
// would have no effect, and steps to dump that the run will not have.
int checks_config(const TrainConfig *config, const Options *options, const DataSource *data,
                  size_t total_steps, Error *err);

// Checks what --cuda-graph, --amp and --tf32 need of the device and the strategy.
int checks_device(const TrainConfig *config, const DataSource *data, const Strategy *strategy,
                  Error *err);

// Checks, where the processes' mean gradients are averaged, that all processes have the same number
// of rows in each batch.
int checks_shares(const Strategy *strategy, Error *err);

// Checks that every file that the run is to write can be written: each is begun, and then
// abandoned.
int checks_outputs(const TrainConfig *config, Error *err);

// Checks that every rank was started with the same options, but for the names of files: ranks that
// differ in a learning rate or a seed would train on, each its own way. Collective. The error names
// the first option that differs.
int checks_same_options(Strategy *strategy, const Options *options, Error *err);

// Checks that every rank has training samples of the same shape, so that its model fits the
// others'. Collective.
int checks_same_shapes(Strategy *strategy, const TrainConfig *config, const DataSource *data,
                       Error *err);

// Checks that every rank has opened the same data: sizes, shapes, classes, a hash of all labels of
// samples, and a hash of some samples. Collective.
int checks_same_data(Strategy *strategy, const TrainConfig *config, const DataSource *data,
                     Error *err);

// A hash that tells two texts apart: of their tokens, and of the characters that these stand for.
uint64_t checks_hash_text(const DataSource *data);

// Checks that every rank has found the same checkpoint at --resume, or none. Each has looked for
// itself, and nodes with disks of their own may differ. Collective.
int checks_same_checkpoint(Strategy *strategy, const char *resume, const Progress *progress,
                           Error *err);

// Checks that a checkpoint's place in its run makes sense in this one. What would make it another
// run is an error; what only ends bit-for-bit continuation is said on the log.
int checks_resumed(const char *path, const Progress *saved, const Progress *now,
                   size_t batches_per_epoch, Log *log, Error *err);

#endif
