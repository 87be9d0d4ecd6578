/* setup.h: what the programs train, and where: data, devices and the model, as the shared options
 * name them.
 */
#ifndef COMMON_TRAIN_SETUP_H
#define COMMON_TRAIN_SETUP_H

#include "common/data/dataset.h"
#include "common/data/sampler.h"
#include "common/nn/module.h"
#include "common/train/train_config.h"

// Opens the data that --data names. Without --data they are the digits, for the toy model
// synthetic:10:5, for a model of pixels the shapes, and for a gpt the text. For a gpt, a sample of
// a text is as long as the model's context.
DataSource *train_open_data(const TrainConfig *config, Error *err);
const char *train_data_name(const TrainConfig *config); // the name of what it opens

// The steps of a run whose batches this sampler makes.
size_t train_steps(const TrainConfig *config, const Sampler *sampler);

// The kind of device that --device names: "cpu", "cuda", "ref". auto is "cuda" on a host that has
// so many GPUs; if it has fewer, and tell is set, a line on stderr says why it is "cpu". With
// --dry-run "dry-cpu" or "dry-cuda".
const char *train_device_kind(const TrainConfig *config, int devices, bool tell);
// Opens the device `index` of that kind. auto is "cuda" here if there is such a device.
Device *train_open_device(const TrainConfig *config, int index, Error *err);

// Builds the model that --model names for the data's shapes. Rank r draws its own weights, with
// the seed plus r, as ranks that do not talk to each other would; --load-init and --save-init are
// rank 0's. A strategy with several ranks has to make them equal.
Module *train_create_model(const TrainConfig *config, const DataSource *data, Device *device,
                           int rank, Error *err);

#endif
