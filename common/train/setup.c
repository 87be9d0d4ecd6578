/* setup.c: data, devices and models by name. */
#include "common/train/setup.h"

#include <string.h>

#include "common/base/format.h"
#include "common/device/link.h"
#include "common/nn/models.h"
#include "common/nn/summary.h"
#include "common/tensor_files/safetensors.h"

const char *train_data_name(const TrainConfig *config) {
    if (config->data) return config->data;
    if (model_is_dense(config->model)) return "shapes";
    if (model_is_text(config->model)) return "text";
    bool toy = strcmp(config->model, "toy") == 0; // the tutorial's toy regresses 10 numbers to 5
    return toy ? "synthetic:10:5" : "digits";
}

// The model's configuration by the options; input and output shapes are the data's.
static ModelConfig model_config(const TrainConfig *config, int rank) {
    return (ModelConfig){.name = config->model,
                         .hidden = config->hidden,
                         .gpt = config->gpt,
                         .seed = config->seed + (uint64_t)rank};
}

DataSource *train_open_data(const TrainConfig *config, Error *err) {
    ModelConfig model = model_config(config, 0);
    bool text = model_is_text(config->model);
    return dataset_open_with(
        &(DataOptions){.name = train_data_name(config),
                       .seed = config->seed,
                       .ignore_label = config->ignore_label,
                       .context = text ? model_gpt_sizes(&model).context : config->gpt.context,
                       .vocabulary = config->vocabulary},
        err);
}

size_t train_steps(const TrainConfig *config, const Sampler *sampler) {
    size_t batches = sampler->batch_count;
    if (config->drop_last && sampler->global[batches - 1] < config->global_batch) batches--;
    return config->steps ? config->steps : config->epochs * batches;
}

const char *train_device_kind(const TrainConfig *config, int devices, bool tell) {
    const char *kind = config->device;
    if (strcmp(kind, "auto") == 0) {
        Error why = {0};
        int gpus = device_usable("cuda", &why);
        kind = gpus > 0 && gpus >= devices ? "cuda" : "cpu";
        if (gpus == 0 && why.status != STATUS_OK && tell)
            fprintf(stderr, "%s: on the CPU\n", why.message);
        if (gpus > 0 && gpus < devices && tell)
            fprintf(stderr, "%d devices wanted, %d GPU%s on this host: on the CPU\n", devices, gpus,
                    format_s((size_t)gpus));
    }
    if (!(config->dry_run || config->summary) || strncmp(kind, "dry-", 4) == 0) return kind;
    return strcmp(kind, "cuda") == 0 ? "dry-cuda" : "dry-cpu";
}

static int emulate_link(const TrainConfig *config, Device *device, Error *err) {
    LinkSpeed speed;
    if (!config->link) return 0;
    if (link_parse(config->link, &speed, err) != 0) return -1;
    if (!device_is_cpu(device))
        return error_set(err, STATUS_USAGE, "--link is for --device cpu: %s has a real one",
                         device->name);
    device_emulate_link(device, speed);
    return 0;
}

static int use_threads(const TrainConfig *config, const Device *device, Error *err) {
    if (config->threads == 1) return 0;
    if (!device->kernels->use_threads)
        return error_set(err, STATUS_USAGE, "--threads is for --device cpu, not %s", device->name);
    if (device->kernels->use_threads((int)config->threads, err) == 0) return 0;
    error_prefix(err, "--threads %zu", config->threads);
    return -1;
}

Device *train_open_device(const TrainConfig *config, int index, Error *err) {
    char name[16];
    snprintf(name, sizeof name, "%s:%d", train_device_kind(config, index + 1, true), index);
    Device *device = device_open(name, err);
    if (!device) return NULL;
    device->tf32 = config->tf32;
    device->limit_bytes = (size_t)(config->memory_limit_mib * (1 << 20));
    if (emulate_link(config, device, err) == 0 && use_threads(config, device, err) == 0)
        return device;
    device_close(device);
    return NULL;
}

// Prints --summary and ends the program, as --help does.
static _Noreturn void end_with_summary(const TrainConfig *config, const DataSource *data,
                                       Module *model, int rank) {
    const size_t *shape = data->train.shape;
    if (rank != 0) process_end(STATUS_OK);
    printf("%s for samples of %zu", config->model, shape[0]);
    if (data->train.tokens)
        printf(" tokens out of %zu (%s)\n", data->train.classes, data->name);
    else
        printf("x%zux%zu (%s)\n", shape[1], shape[2], data->name);
    summary_print(model, stdout);
    process_end(STATUS_OK);
}

static const char *kind_name(bool dense, bool text) {
    return dense ? "pixels" : text ? "tokens" : "samples";
}

// Checks that the model's outputs fit the data's labels. 0, or -1 with err filled.
static int check_kind(const TrainConfig *config, const DataSource *data, Error *err) {
    const char *name = config->model;
    const char *predicts = kind_name(model_is_dense(name), model_is_text(name));
    const char *labels = kind_name(data->train.dense, data->train.tokens != NULL);
    if (strcmp(predicts, labels) == 0) return 0;
    return error_set(err, STATUS_USAGE, "--model %s predicts %s, but %s has labels of %s", name,
                     predicts, data->name, labels);
}

static ModelConfig wanted_model(const TrainConfig *config, const DataSource *data, int rank) {
    const Dataset *set = &data->train;
    ModelConfig wanted = model_config(config, rank);
    memcpy(wanted.input, set->shape, sizeof wanted.input);
    wanted.outputs = set->classes ? set->classes : set->target_size;
    return wanted;
}

static int load_weights(const TrainConfig *config, Module *model, Error *err) {
    const char *weights = config->evaluate ? config->evaluate : config->load_init;
    return weights ? safetensors_load_stripped(weights, config->strip_prefix, model, err) : 0;
}

Module *train_build_model(const TrainConfig *config, const DataSource *data, Device *device,
                          int rank, Error *err) {
    const ModelConfig wanted = wanted_model(config, data, rank);
    if (check_kind(config, data, err) != 0) return NULL;
    Module *model = model_create(&wanted, device, err);
    if (model && config->summary) end_with_summary(config, data, model, rank);
    return model;
}

int train_fill_model(const TrainConfig *config, const DataSource *data, Module *model, Error *err) {
    const ModelConfig wanted = wanted_model(config, data, 0);
    model_initialize(&wanted, model);
    return load_weights(config, model, err);
}

Module *train_create_model(const TrainConfig *config, const DataSource *data, Device *device,
                           int rank, Error *err) {
    Module *model = train_build_model(config, data, device, rank, err);
    if (!model || rank != 0) return model;
    int failed = load_weights(config, model, err);
    if (!failed && config->save_init)
        failed = safetensors_save_module(config->save_init, model, NULL, 0, err);
    if (!failed) return model;
    module_close(model);
    return NULL;
}
