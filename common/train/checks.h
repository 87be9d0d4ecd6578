/* checks.h: validation before the first step. Each function returns 0, or -1 with err filled
 * (STATUS_USAGE).
 *
 *     checks_config, checks_device, checks_shares      options, device and batches, in each process
 *     checks_outputs                                   the files to write, in the main process
 *     checks_same_shapes, checks_same_data,
 *     checks_same_checkpoint                           collective: all ranks have the same files
 *     checks_resumed                                   the checkpoint fits the run
 */
#ifndef COMMON_TRAIN_CHECKS_H
#define COMMON_TRAIN_CHECKS_H

#include "common/tensor_files/checkpoint.h"
#include "common/train/job.h"
#include "common/train/setup.h"

// Rejects options that exclude each other, lack a required option or have no effect, and
// --dump-step of a step past the run's end.
int checks_config(const TrainConfig *config, const Options *options, const DataSource *data,
                  size_t total_steps, Error *err);

// Checks the requirements of --cuda-graph, --amp and --tf32 on the device and the job.
int checks_device(const TrainConfig *config, const DataSource *data, const Job *job, Error *err);

// Where processes' mean gradients are averaged: checks that all processes have the same number of
// rows in each batch.
int checks_shares(const Strategy *strategy, Error *err);

// Checks that every output file can be written: opens each and abandons it.
int checks_outputs(const TrainConfig *config, Error *err);

// Checks that all ranks' training samples have the same shape, and so their models. Collective.
int checks_same_shapes(Job *job, const TrainConfig *config, const DataSource *data, Error *err);

// Checks that all ranks' data agree in sizes, shapes, classes, a hash of all samples' labels and a
// hash of some samples. Collective.
int checks_same_data(Job *job, const TrainConfig *config, const DataSource *data, Error *err);

// Returns a hash of a text's tokens and of the characters they encode.
uint64_t checks_hash_text(const DataSource *data);

// Checks that all ranks have found the same checkpoint at --resume, or all none: nodes with
// separate disks may differ. Collective.
int checks_same_checkpoint(Job *job, const char *resume, const Progress *progress, Error *err);

// Checks that a checkpoint's Progress fits this run. A difference that makes it another run is an
// error; a difference that only ends bit-for-bit continuation is logged.
int checks_resumed(const char *path, const Progress *saved, const Progress *now, RunLog *log,
                   Error *err);

#endif
