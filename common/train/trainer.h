/* trainer.h: the trainer. Epochs of steps, evaluation, checkpoints, records; written once and
 * driven through a Strategy, so that one device, DataParallel and DistributedDataParallel differ
 * only there.
 *
 * A step is train_step.h's. Its loss is written down a step or two later, when a GPU has computed
 * it and the ranks have added theirs up: nobody waits for either.
 */
#ifndef COMMON_TRAIN_TRAINER_H
#define COMMON_TRAIN_TRAINER_H

#include "common/base/log.h"
#include "common/base/options.h"
#include "common/data/dataset.h"
#include "common/nn/models.h"
#include "common/nn/optimizer.h"
#include "common/train/strategy.h"

// The shared options of the three programs, with their defaults (train_config_default).
typedef struct TrainConfig {
    const char *model, *hidden, *data, *device;
    int ignore_label; // a pixel's gray value in a picture of labels that does not count; -1: none
    size_t epochs, steps; // steps > 0 ends the run after so many, whatever the epochs
    size_t global_batch;
    bool no_shuffle, augment;
    double lr;
    OptimizerKind optimizer;
    double momentum, weight_decay, betas[2], eps;
    bool nesterov;
    Precision amp;
    bool tf32, cuda_graph;
    ScheduleKind schedule;
    size_t warmup_steps, step_every; // step_every 0: a third of the run
    double warmup_start, gamma, power;
    double ohem_threshold; // of pixels: keep those whose loss is above (0: all)
    size_t ohem_min;       // but at least so many (0: a sixteenth)
    uint64_t seed;
    size_t log_every;
    const char *out, *save, *resume, *save_init, *load_init;
    size_t save_every; // also write the checkpoint every so many steps (0: at the end of epochs)
    const char *dump_grads, *dump_step; // dump_step: "0" or "0,1,10"; then FILE contains {step}
    size_t dump_images;                 // every so many epochs; 0: never
    bool profile;
    bool no_eval;
    const char *trace;
} TrainConfig;

TrainConfig train_config_default(void);
// Appends the shared options, bound to config.
void train_options(Options *options, TrainConfig *config);

// "none", "bf16", "fp16", as --amp calls it
const char *train_amp_name(Precision precision);

// The data that --data names: by default the digits, for the toy model synthetic:10:5, and for a
// model of pixels shapes.
DataSource *train_open_data(const TrainConfig *config, Error *err);
const char *train_data_name(const TrainConfig *config); // what it opens

// The kind of device that --device names: "cpu", "cuda", "ref". auto is "cuda" on a host that has
// so many GPUs; if it has fewer, and tell is set, a line on stderr says why it is "cpu".
const char *train_device_kind(const TrainConfig *config, int devices, bool tell);
// The device `index` of that kind (auto: "cuda" if there is such a one).
Device *train_open_device(const TrainConfig *config, int index, Error *err);

// Builds the model that --model names for the data's shapes. Rank r draws its own weights, with
// the seed plus r, as ranks that do not talk to each other would; --load-init and --save-init are
// rank 0's. A strategy with several ranks has to make them equal.
Module *train_create_model(const TrainConfig *config, const DataSource *data, Device *device,
                           int rank, Error *err);

// Trains, evaluates, writes what the configuration asks for. The options table goes into
// config.json. Returns 0, or -1 with err filled (STATUS_FAILED when the loss is NaN or a rank is
// lost).
int trainer_run(const TrainConfig *config, const Options *options, const DataSource *data,
                Strategy *strategy, Error *err);

#endif
