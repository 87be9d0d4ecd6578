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
    const char *link;  // between the devices, emulated (device/link.h); NULL: none
    GptSizes gpt;      // sizes of a gpt and its samples; 0: those that the model's name has
    size_t vocabulary; // tokens that a gpt knows; 0: as many as the text has
    int ignore_label;  // a pixel's gray value in a picture of labels that does not count; -1: none
    size_t epochs, steps; // steps > 0 ends the run after so many, whatever the epochs
    size_t global_batch;
    size_t accumulate_steps; // parts that a step's batch is worked on in
    bool no_shuffle, drop_last, augment;
    int sampler_seed; // of the samples' order; negative: seed
    double lr;
    OptimizerKind optimizer;
    double momentum, weight_decay, betas[2], eps;
    bool nesterov;
    Precision amp;
    bool tf32, cuda_graph;
    ScheduleKind schedule;
    size_t warmup_steps, step_every; // step_every 0: a third of the run
    double warmup_start, gamma, power;
    double clip_grad_norm; // 0: gradients are left as they are
    LossKind loss;
    double pos_weight;       // bce: how many times a "yes" counts
    double ohem_threshold;   // of pixels: keep those whose loss is above (0: all)
    double ohem_probability; // or whose class is less probable (0: all)
    size_t ohem_min;         // but at least so many (0: a sixteenth)
    uint64_t seed;
    size_t log_every;
    const char *out, *save, *resume, *save_init, *load_init;
    const char *strip_prefix; // of the names in the file of --load-init or --evaluate; or NULL
    size_t save_every; // also write the checkpoint every so many steps (0: at the end of epochs)
    const char *dump_grads, *dump_step; // dump_step: "0" or "0,1,10"; then FILE contains {step}
    size_t dump_images;                 // every so many epochs; 0: never
    size_t keep_epochs;   // also keep a checkpoint of every so many epochs; 0: of none
    const char *evaluate; // weights to evaluate instead of training
    size_t sample;        // characters to write at the end (generation.h)
    bool profile;
    bool no_eval;
    bool summary; // print the model and end
    bool dry_run; // count bytes instead of training (dry_run.h)
    const char *trace;
} TrainConfig;

TrainConfig train_config_default(void);
// Appends the shared options, bound to config.
void train_options(Options *options, TrainConfig *config);

// The order of the samples: --sampler-seed or, without it, --seed.
uint64_t train_sampler_seed(const TrainConfig *config);

// "none", "bf16", "fp16", as --amp calls it
const char *train_amp_name(Precision precision);

#endif
