/* options.c: the options that the three programs share, and what follows from them directly. */
#include <string.h>

#include "common/nn/models.h"
#include "common/train/safetensors.h"
#include "common/train/trainer.h"

TrainConfig train_config_default(void) {
    return (TrainConfig){.model = "mlp",
                         .hidden = "256,128",
                         .device = "auto",
                         .epochs = 10,
                         .global_batch = 60,
                         .lr = 0.08,
                         .optimizer = "sgd",
                         .momentum = 0.9,
                         .weight_decay = 0.01,
                         .amp = "none",
                         .schedule = "cosine",
                         .seed = 0,
                         .log_every = 25};
}

static void model_and_data_options(Options *o, TrainConfig *c) {
    options_add(o, (Option){.type = OPTION_TITLE, .help = "Model and data"});
    options_add(o, (Option){"model", OPTION_CHOICE, &c->model, model_names(), 0, 0, "the network"});
    options_add(o, (Option){"hidden", OPTION_STRING, &c->hidden, "N,N", 0, 0,
                            "mlp: sizes of the hidden layers"});
    options_add(o, (Option){"data", OPTION_STRING, &c->data, "NAME|DIR", 0, 0,
                            "digits (default), synthetic[:3x32x32:10[@COUNT]], "
                            "shapes[:32x32[@COUNT]] (pixels with labels, for segnet), or a folder "
                            "with MNIST-style IDX files or CIFAR-10 binary batches"});
    options_add(o, (Option){"augment", OPTION_FLAG, &c->augment, NULL, 0, 0,
                            "random crop (padding 4) and horizontal flip of training images"});
    options_add(o, (Option){"no-shuffle", OPTION_FLAG, &c->no_shuffle, NULL, 0, 0,
                            "take the samples in their order"});
    options_add(o, (Option){"global-batch", OPTION_SIZE, &c->global_batch, "N", 1, 1 << 24,
                            "samples per step on all devices together"});
    options_add(o, (Option){"device", OPTION_CHOICE, &c->device, "auto|cpu|cuda|ref", 0, 0,
                            "where to compute; auto: on GPUs if there are any; ref: the plain-C "
                            "reference kernels"});
    options_add(o, (Option){"amp", OPTION_CHOICE, &c->amp, "none|bf16|fp16", 0, 0,
                            "mixed precision: linear and convolution in 16 bits, the rest and the "
                            "weights in 32"});
    options_add(o, (Option){"tf32", OPTION_FLAG, &c->tf32, NULL, 0, 0,
                            "cuda: products of float32 may round to 10 bits"});
    options_add(o, (Option){"cuda-graph", OPTION_FLAG, &c->cuda_graph, NULL, 0, 0,
                            "cuda: capture a step once and replay it (one GPU per process)"});
    options_add(o, (Option){"seed", OPTION_U64, &c->seed, "N", 0, 0,
                            "of initial weights, order and augmentation"});
}

static void optimisation_options(Options *o, TrainConfig *c) {
    options_add(o, (Option){.type = OPTION_TITLE, .help = "Optimisation"});
    options_add(o,
                (Option){"epochs", OPTION_SIZE, &c->epochs, "N", 1, 1e9, "passes over the data"});
    options_add(o, (Option){"steps", OPTION_SIZE, &c->steps, "N", 0, 1e12,
                            "end after so many steps instead of epochs (0: epochs)"});
    options_add(o, (Option){"optimizer", OPTION_CHOICE, &c->optimizer, "sgd|adamw", 0, 0, ""});
    options_add(o, (Option){"lr", OPTION_FLOAT, &c->lr, "F", 0, 1e6, "learning rate"});
    options_add(o, (Option){"momentum", OPTION_FLOAT, &c->momentum, "F", 0, 1, "sgd"});
    options_add(o, (Option){"nesterov", OPTION_FLAG, &c->nesterov, NULL, 0, 0, "sgd"});
    options_add(o, (Option){"weight-decay", OPTION_FLOAT, &c->weight_decay, "F", 0, 1e6, ""});
    options_add(o, (Option){"schedule", OPTION_CHOICE, &c->schedule,
                            "constant|step|cosine|polynomial", 0, 0, "of the learning rate"});
    options_add(o, (Option){"warmup-steps", OPTION_SIZE, &c->warmup_steps, "N", 0, 1e12,
                            "linear warm-up before the schedule"});
    options_add(o, (Option){"ohem-threshold", OPTION_FLOAT, &c->ohem_threshold, "F", 0, 1e6,
                            "segnet: learn only from pixels whose loss is above F (0: from all)"});
    options_add(o, (Option){"ohem-min", OPTION_SIZE, &c->ohem_min, "N", 0, 1e12,
                            "but at least from the N hardest of a rank's batch (0: a sixteenth)"});
}

static void file_options(Options *o, TrainConfig *c) {
    options_add(o, (Option){.type = OPTION_TITLE, .help = "Records and files"});
    options_add(o, (Option){"log-every", OPTION_SIZE, &c->log_every, "N", 1, 1e12,
                            "steps between lines on stdout and rows in steps.csv"});
    options_add(
        o,
        (Option){"out", OPTION_STRING, &c->out, "DIR", 0, 0,
                 "write config.json, steps.csv, summary.json, best, last and previous checkpoint"});
    options_add(o, (Option){"save", OPTION_STRING, &c->save, "FILE", 0, 0,
                            "the last checkpoint (safetensors)"});
    options_add(o, (Option){"save-every", OPTION_SIZE, &c->save_every, "N", 0, 1e12,
                            "also save every so many steps, not only after epochs"});
    options_add(o, (Option){"resume", OPTION_STRING, &c->resume, "FILE|DIR|auto", 0, 0,
                            "continue from a checkpoint, bit for bit; DIR: from the newest whole "
                            "one in it; auto: from what --save or --out of this very command "
                            "wrote before, from the start if nothing yet (for ddprun "
                            "--max-restarts)"});
    options_add(o, (Option){"save-init", OPTION_STRING, &c->save_init, "FILE", 0, 0,
                            "the initial weights"});
    options_add(o, (Option){"load-init", OPTION_STRING, &c->load_init, "FILE", 0, 0,
                            "initial weights instead of random ones"});
    options_add(o, (Option){"dump-grads", OPTION_STRING, &c->dump_grads, "FILE", 0, 0,
                            "write the reduced gradients of --dump-step; {step} in the name is "
                            "replaced by the step"});
    options_add(o, (Option){"dump-step", OPTION_STRING, &c->dump_step, "K[,K]", 0, 0,
                            "which steps, from 0"});
    options_add(o, (Option){"dump-images", OPTION_SIZE, &c->dump_images, "K", 0, 1e9,
                            "segnet: every K epochs, write test images beside their true and "
                            "predicted labels to --out DIR/images"});
    options_add(o, (Option){"no-eval", OPTION_FLAG, &c->no_eval, NULL, 0, 0,
                            "do not evaluate on the test split"});
    options_add(o, (Option){"profile", OPTION_FLAG, &c->profile, NULL, 0, 0,
                            "end with a table of where the steps' time went"});
    options_add(o, (Option){"trace", OPTION_STRING, &c->trace, "FILE", 0, 0,
                            "write a timeline of all ranks for ui.perfetto.dev"});
}

void train_options(Options *options, TrainConfig *config) {
    if (!config->dump_step) config->dump_step = "0";
    model_and_data_options(options, config);
    optimisation_options(options, config);
    file_options(options, config);
}

const char *train_data_name(const TrainConfig *config) {
    if (config->data) return config->data;
    if (model_is_dense(config->model)) return "shapes";
    bool toy = strcmp(config->model, "toy") == 0; // the tutorial's toy regresses 10 numbers to 5
    return toy ? "synthetic:10:5" : "digits";
}

DataSource *train_open_data(const TrainConfig *config, Error *err) {
    return dataset_open(train_data_name(config), config->seed, err);
}

const char *train_device_kind(const TrainConfig *config, int devices, bool tell) {
    if (strcmp(config->device, "auto") != 0) return config->device;
    int gpus = device_available("cuda");
    if (gpus > 0 && gpus >= devices) return "cuda";
    if (gpus > 0 && tell)
        fprintf(stderr, "%d devices wanted, %d GPU%s on this host: on the CPU\n", devices, gpus,
                gpus == 1 ? "" : "s");
    return "cpu";
}

Device *train_open_device(const TrainConfig *config, int index, Error *err) {
    char name[16];
    snprintf(name, sizeof name, "%s:%d", train_device_kind(config, index + 1, true), index);
    Device *device = device_open(name, err);
    if (device) device->tf32 = config->tf32;
    return device;
}

Module *train_create_model(const TrainConfig *config, const DataSource *data, Device *device,
                           int rank, Error *err) {
    const Dataset *set = &data->train;
    ModelConfig model_config = {.name = config->model,
                                .hidden = config->hidden,
                                .input = {set->shape[0], set->shape[1], set->shape[2]},
                                .outputs = set->classes ? set->classes : set->target_size,
                                .seed = config->seed + (uint64_t)rank};
    if (model_is_dense(config->model) != set->dense) {
        error_set(err, STATUS_USAGE, "--model %s predicts %s, but %s has labels of %s",
                  config->model, model_is_dense(config->model) ? "pixels" : "samples", data->name,
                  set->dense ? "pixels" : "samples");
        return NULL;
    }
    Module *model = model_create(&model_config, device, err);
    if (!model || rank != 0) return model;
    int failed = 0;
    if (config->load_init) failed = safetensors_load_module(config->load_init, model, err);
    if (!failed && config->save_init)
        failed = safetensors_save_module(config->save_init, model, NULL, 0, err);
    if (!failed) return model;
    module_close(model);
    return NULL;
}
