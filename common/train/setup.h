/* setup.h: opens the data, the devices and the model that the shared options name.
 */
#ifndef COMMON_TRAIN_SETUP_H
#define COMMON_TRAIN_SETUP_H

#include "common/data/dataset.h"
#include "common/data/sampler.h"
#include "common/nn/module.h"
#include "common/train/train_config.h"

// Opens --data; NULL with err filled. A gpt's samples of text are as long as its context. Defaults:
//
//     model      toy              segnet     gpt      other
//     --data     synthetic:10:5   shapes     text     digits
DataSource *train_open_data(const TrainConfig *config, Error *err);
const char *train_data_name(const TrainConfig *config); // --data, or its default

// Returns the number of steps of a run on this sampler's batches.
size_t train_steps(const TrainConfig *config, const Sampler *sampler);

// Returns the kind of --device: "cpu", "cuda", "ref"; with --dry-run or --summary "dry-cpu" or
// "dry-cuda". auto is "cuda" on a host with at least `devices` GPUs, else "cpu"; if tell is set,
// stderr gets the reason.
const char *train_device_kind(const TrainConfig *config, int devices, bool tell);
// Opens device `index` of that kind; auto is "cuda" if that GPU exists. NULL with err filled.
Device *train_open_device(const TrainConfig *config, int index, Error *err);

// The two halves of train_create_model, for a model that gets its memory between them: built on a
// device without memory ("dry-cpu"), filled by ddp/fsdp's shards. train_fill_model gives every rank
// rank 0's weights. NULL or -1 with err filled.
Module *train_build_model(const TrainConfig *config, const DataSource *data, Device *device,
                          int rank, Error *err);
int train_fill_model(const TrainConfig *config, const DataSource *data, Module *model, Error *err);
// Builds --model for the data's shapes; NULL with err filled. Rank r initializes its weights with
// seed + r; --load-init and --save-init apply to rank 0. DistributedDataParallel's broadcast makes
// the ranks equal.
Module *train_create_model(const TrainConfig *config, const DataSource *data, Device *device,
                           int rank, Error *err);

#endif
