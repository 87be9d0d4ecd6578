/* train_config.h: what the three programs have in common on their command lines. */
#ifndef COMMON_TRAIN_TRAIN_CONFIG_H
#define COMMON_TRAIN_TRAIN_CONFIG_H

#include <stdint.h>

#include "common/base/options.h"
#include "common/nn/gpt.h"
#include "common/nn/optimizer.h"

typedef enum LossKind { LOSS_AUTO, LOSS_BCE } LossKind; // auto: what the labels ask for

// The shared options of the three programs, with their defaults (train_config_default).
typedef struct TrainConfig {
    const char *model, *hidden, *data, *device;
    const char *link; // the emulated link between the devices (device/link.h), or NULL
    GptSizes gpt;     // sizes of a gpt and its samples; one that is 0 follows from the model's name
    size_t vocabulary;    // how many tokens a gpt knows; 0: as many as the text has
    int ignore_label;     // pixels whose label is this gray value do not count; -1: all count
    size_t epochs, steps; // if steps is not 0 the run ends after so many, whatever epochs says
    size_t global_batch;
    size_t accumulate_steps; // a step's batch is worked on in so many parts
    bool no_shuffle, drop_last, augment;
    int sampler_seed; // the seed of the samples' order; negative: the same as `seed`
    double lr;
    OptimizerKind optimizer;
    double momentum, weight_decay, betas[2], eps;
    bool nesterov;
    Precision amp;
    bool tf32, cuda_graph;
    size_t threads; // of a CPU device for its matrix products
    ScheduleKind schedule;
    size_t warmup_steps, step_every; // step_every may be 0: a third of the run
    double warmup_start, gamma, power;
    double clip_grad_norm; // 0: gradients are left as they are
    LossKind loss;
    double pos_weight;       // with LOSS_BCE a "yes" counts so many times
    double ohem_threshold;   // only pixels with a loss above this are learnt from; 0: all are
    double ohem_probability; // the same, said by the probability of the true class; 0: all are
    size_t ohem_min;         // at least so many pixels are learnt from; 0: a sixteenth of them
    uint64_t seed;
    size_t log_every;
    const char *out, *save, *resume, *save_init, *load_init;
    const char *strip_prefix; // left out of the names in the file of load_init or evaluate; or NULL
    size_t save_every;        // also save every so many steps; 0: only at the end of epochs
    const char *dump_grads;   // the file for gradients; its name contains {step} for several steps
    const char *dump_step;    // which steps' gradients: "0" or "0,1,10"
    size_t dump_images;       // write pictures every so many epochs; 0: never
    size_t keep_epochs;       // also keep a checkpoint of every so many epochs; 0: of none
    const char *evaluate;     // the file of weights that are evaluated instead of training, or NULL
    size_t sample;            // how many characters are written at the end (generation.h)
    bool profile;
    bool no_eval;
    bool summary; // print the model, then end
    bool dry_run; // count bytes instead of training (dry_run.h)
    const char *trace;
} TrainConfig;

TrainConfig train_config_default(void);
// Appends the shared options, bound to config.
void train_options(Options *options, TrainConfig *config);

// The optimizer that the options ask for, for one process alone (no sharding).
OptimizerConfig train_optimizer(const TrainConfig *config);

// The seed of the samples' order: --sampler-seed or, without it, --seed.
uint64_t train_sampler_seed(const TrainConfig *config);

// The word that --amp has for a precision: "none", "bf16", "fp16".
const char *train_amp_name(Precision precision);

#endif
