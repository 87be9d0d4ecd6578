/* train_config.h: the options that the three programs share, and values derived from them. */
#ifndef COMMON_TRAIN_TRAIN_CONFIG_H
#define COMMON_TRAIN_TRAIN_CONFIG_H

#include <stdint.h>

#include "common/base/options.h"
#include "common/nn/gpt.h"
#include "common/nn/optimizer.h"

typedef enum LossKind { LOSS_AUTO, LOSS_BCE } LossKind; // auto: by the data (loss.h)

// The shared options of the three programs, with their defaults (train_config_default).
typedef struct TrainConfig {
    const char *model, *hidden, *data, *device;
    const char *link;        // the emulated link between the devices (device/link.h), or NULL
    double memory_limit_mib; // of each device; 0: no limit
    GptSizes gpt;            // sizes of a gpt; 0: by the model's name
    size_t vocabulary;       // number of a gpt's tokens; 0: the text's
    int ignore_label;        // gray value of ignored pixels; -1: none are ignored
    size_t epochs, steps;    // steps > 0: the run's number of steps, overriding epochs
    size_t global_batch;
    size_t accumulate_steps; // number of micro-batches of a step
    bool no_shuffle, drop_last, augment;
    int sampler_seed; // seed of the samples' order; negative: `seed`
    OptimizerKind optimizer;
    double momentum, weight_decay, betas[2], eps;
    bool nesterov;
    Precision amp;
    bool tf32, cuda_graph;
    size_t threads;        // of a CPU device's matrix products
    Schedule schedule;     // of the learning rate; run_open sets total_steps
    double clip_grad_norm; // 0: no clipping
    LossKind loss;
    double pos_weight;       // of LOSS_BCE: weight of positive labels
    double ohem_threshold;   // only pixels of larger loss count; 0: all count
    double ohem_probability; // only pixels of smaller true-class probability; 0: all
    size_t ohem_min;         // minimum number of counted pixels; 0: 1/16 of them
    uint64_t seed;
    size_t log_every;
    const char *out, *save, *resume, *save_init, *load_init;
    const char *strip_prefix; // removed from names in the file of load_init or evaluate; or NULL
    size_t save_every;        // also save every N steps; 0: only at the end of epochs
    const char *dump_grads;   // file of gradients; with {step} in its name for several steps
    const char *dump_step;    // the steps: "0" or "0,1,10"
    size_t dump_images;       // write pictures every N epochs; 0: never
    size_t keep_epochs;       // keep a checkpoint every N epochs; 0: none
    const char *evaluate;     // file of weights to evaluate instead of training; or NULL
    size_t sample;            // tokens to generate at the end (generation.c)
    bool profile;
    bool no_eval;
    bool summary; // print the model, then end
    bool dry_run; // count bytes instead of training (dry_run.c)
    const char *trace;
} TrainConfig;

TrainConfig train_config_default(void);
// Appends the shared options, bound to config.
void train_options(Options *options, TrainConfig *config);

// Writes the options that must be equal on all ranks, one line each: "--lr 0.08". Omits names of
// files that only rank 0 uses.
void train_options_alike(const Options *options, char *text, size_t capacity);

// Returns the optimizer's configuration, without sharding.
OptimizerConfig train_optimizer(const TrainConfig *config);

// Returns --sampler-seed or, without it, --seed.
uint64_t train_sampler_seed(const TrainConfig *config);

// Returns --amp's word for a precision: "none", "bf16", "fp16".
const char *train_amp_name(Precision precision);

#endif
