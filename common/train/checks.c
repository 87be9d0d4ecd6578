/* checks.c: checks of one process: options, device, outputs, the resumed checkpoint. */
#include "common/train/checks.h"

#include <string.h>

#include "common/base/file.h"
#include "common/base/format.h"

// ---- options ----------------------------------------------------------------------------------

static bool is(const char *value, const char *word) {
    return strcmp(value, word) == 0;
}

// Rejects options without effect because of --evaluate, --dry-run or a missing output file.
static int check_used_by_run(const TrainConfig *config, const Options *options, Error *err) {
    const bool trains = config->evaluate == NULL, computes = !config->dry_run;
    const OptionUse uses[] = {
        {"epochs|steps|accumulate-steps|clip-grad-norm|sampler-seed", trains,
         "--evaluate does not train"},
        {"drop-last", trains, "--evaluate takes the whole test split"},
        {"sampler-seed", !config->no_shuffle, "with --no-shuffle there is no order to draw"},
        {"resume|load-init", trains, "--evaluate brings its own weights"},
        {"strip-prefix", config->load_init || config->evaluate,
         "it is for --load-init and --evaluate"},
        {"no-eval", trains, "--evaluate does nothing else"},
        {"save|save-every|keep-epochs", trains, "--evaluate leaves the weights as they are"},
        {"dump-grads", trains, "--evaluate has no gradients"},
        {"dump-images", trains, "--evaluate has no epochs"},
        {"evaluate|sample|resume|threads", computes, "--dry-run computes nothing"},
        {"save|out", computes, "--dry-run writes nothing"},
        {"trace|profile", computes, "--dry-run takes no time"},
        {"dump-grads", computes, "--dry-run has no gradients"},
        {"cuda-graph", computes, "--dry-run takes no step that could be replayed"},
        {"epochs", config->steps == 0, "--steps says when the run ends"},
        {"save-every", config->save || config->out, "it needs --save or --out to save to"},
        {"keep-epochs|dump-images", config->out != NULL, "it needs --out to write to"},
        {"dump-step", config->dump_grads != NULL, "it needs --dump-grads FILE to write to"},
        {"dump-images", !config->no_eval, "with --no-eval nothing is predicted"},
    };
    return options_check_used(options, uses, sizeof uses / sizeof *uses, err);
}

// Rejects options without effect on the model, the data, the loss, the optimizer or the schedule.
static int check_used_by_choice(const TrainConfig *config, const Options *options,
                                const DataSource *data, Error *err) {
    const bool text = data->train.tokens != NULL, pixels = data->train.dense;
    const bool sgd = config->optimizer == OPTIMIZER_SGD;
    const bool own_loss = config->loss != LOSS_AUTO;
    const OptionUse uses[] = {
        {"layers|heads|embedding|context", text, "only a gpt has these sizes"},
        {"vocabulary", text, "only a gpt has a vocabulary"},
        {"sample", text, "only a gpt generates text"},
        {"hidden", is(config->model, "mlp"), "only --model mlp has hidden layers of these sizes"},
        {"augment", data->train.bytes != NULL, "it moves the pixels of pictures, --data has none"},
        {"momentum", sgd, "adam and adamw have moments of their own: --betas"},
        {"nesterov", sgd, "it is a momentum of --optimizer sgd"},
        {"betas", !sgd, "they are of --optimizer adam and adamw"},
        {"eps", !sgd, "it is of --optimizer adam and adamw"},
        {"gamma|step-every", config->schedule.kind == SCHEDULE_STEP, "it is of --schedule step"},
        {"power", config->schedule.kind == SCHEDULE_POLYNOMIAL, "it is of --schedule polynomial"},
        {"warmup-start", config->schedule.warmup_steps > 0,
         "there is no warm-up without --warmup-steps"},
        {"loss", !own_loss || data->train.classes > 0, "--data has numbers, not classes"},
        {"loss", !own_loss || !pixels, "pixels have one class each: --loss auto"},
        {"pos-weight", config->loss == LOSS_BCE, "it is of --loss bce"},
        {"ignore-label", is(data->name, "pixels"),
         "it is for a folder of pictures and the labels of their pixels"},
        {"ohem-probability|ohem-threshold|ohem-min", pixels,
         "--data has no labels of pixels to choose from"},
        {"ohem-probability", config->ohem_threshold <= 0, "--ohem-threshold says the same"},
        {"ohem-min", config->ohem_threshold > 0 || config->ohem_probability > 0,
         "without --ohem-threshold all pixels count"},
        {"dump-images", pixels, "--data has no labels of pixels to draw"},
    };
    return options_check_used(options, uses, sizeof uses / sizeof *uses, err);
}

static int check_dump_steps(const TrainConfig *config, size_t total_steps, Error *err) {
    for (const char *at = config->dump_step; *at;) {
        uint64_t step;
        if (!format_read_number(&at, UINT64_MAX, &step) || !format_read_comma(&at))
            return error_set(err, STATUS_USAGE, "--dump-step %s: expected steps like 0,1,10",
                             format_quote(config->dump_step).text);
        if (config->dump_grads && step >= total_steps)
            return error_set(err, STATUS_USAGE, "--dump-step %ju: the run ends with step %zu",
                             (uintmax_t)step, total_steps - 1);
    }
    bool several = strchr(config->dump_step, ',') != NULL;
    if (config->dump_grads && several && !strstr(config->dump_grads, "{step}"))
        return error_set(err, STATUS_USAGE,
                         "--dump-grads %s: for several steps the name needs {step}",
                         config->dump_grads);
    return 0;
}

int checks_config(const TrainConfig *config, const Options *options, const DataSource *data,
                  size_t total_steps, Error *err) {
    if (check_used_by_run(config, options, err) != 0) return -1;
    if (check_used_by_choice(config, options, data, err) != 0) return -1;
    if (config->nesterov && config->momentum <= 0)
        return error_set(err, STATUS_USAGE,
                         "--nesterov: Nesterov momentum requires a momentum: --momentum F");
    if (config->schedule.warmup_steps > total_steps)
        return error_set(err, STATUS_USAGE,
                         "--warmup-steps %zu: the run has only %zu step%s, --lr is never reached",
                         config->schedule.warmup_steps, total_steps, format_s(total_steps));
    if (config->resume && config->load_init)
        return error_set(err, STATUS_USAGE,
                         "--resume brings its own weights: --load-init would be overwritten");
    if (config->resume && is(config->resume, "auto") && !config->save && !config->out)
        return error_set(err, STATUS_USAGE,
                         "--resume auto continues what --save or --out wrote: give one of them");
    return check_dump_steps(config, total_steps, err);
}

// A graph holds the work enqueued on one device in a step: steps with a blocking readback are
// rejected.
static int check_graph(const TrainConfig *config, const DataSource *data, const Job *job,
                       Error *err) {
    if (device_is_cpu(job->strategy->device))
        return error_set(err, STATUS_USAGE, "--cuda-graph is for --device cuda, not %s",
                         job->strategy->device->name);
    if (job->all_count > 1)
        return error_set(err, STATUS_USAGE,
                         "--cuda-graph is for one GPU per process, as DistributedDataParallel has "
                         "it: this one uses %d",
                         job->all_count);
    if (job_check_recordable(job, err) != 0) return -1;
    if (data->train.dense)
        return error_set(err, STATUS_USAGE,
                         "--cuda-graph: the number of counted pixels is read back within a step");
    if (config->amp == PRECISION_F16)
        return error_set(err, STATUS_USAGE,
                         "--cuda-graph: with --amp fp16 the host decides in every step whether the "
                         "optimizer steps; bf16 needs no such decision");
    if (config->accumulate_steps > 1)
        return error_set(err, STATUS_USAGE,
                         "--cuda-graph: a step of several micro-batches is not captured");
    if (config->profile)
        return error_set(err, STATUS_USAGE,
                         "--cuda-graph: a replayed step has no phases for "
                         "--profile to tell apart");
    return 0;
}

// Turing GPUs (T4, RTX 20) have tensor cores for fp16 alone.
static int check_capability(const TrainConfig *config, const Device *device, Error *err) {
    enum { AMPERE = 80 };
    const char *option = config->amp == PRECISION_BF16 ? "--amp bf16"
                         : config->tf32                ? "--tf32"
                                                       : NULL;
    if (!option || device->capability == 0 || device->capability >= AMPERE) return 0;
    return error_set(err, STATUS_USAGE,
                     "%s: %s has compute capability %d.%d, and it needs %d.%d -- --amp fp16 runs "
                     "here",
                     option, device->name, device->capability / 10, device->capability % 10,
                     AMPERE / 10, AMPERE % 10);
}

int checks_device(const TrainConfig *config, const DataSource *data, const Job *job, Error *err) {
    if (config->tf32 && device_is_cpu(job->strategy->device))
        return error_set(err, STATUS_USAGE, "--tf32 is for --device cuda, not %s",
                         job->strategy->device->name);
    for (int i = 0; i < job->all_count && job->all; i++)
        if (check_capability(config, job->all[i], err) != 0) return -1;
    if (config->threads > 1 && job->all_count > 1)
        return error_set(err, STATUS_USAGE,
                         "--threads is for one device per process: the %d of this one would take "
                         "turns with the same threads",
                         job->all_count);
    if (config->link && is(job->name, "single"))
        return error_set(err, STATUS_USAGE,
                         "--link is for train_dp and train_ddp: one device has nothing to send");
    size_t parts = config->accumulate_steps, devices = (size_t)job->devices;
    if (parts > 1 && parts > config->global_batch / devices)
        return error_set(err, STATUS_USAGE,
                         "--accumulate-steps %zu: a device has %zu of --global-batch %zu: a part "
                         "would have no sample",
                         parts, config->global_batch / devices, config->global_batch);
    return config->cuda_graph ? check_graph(config, data, job, err) : 0;
}

// With fewer rows in a process each of its rows has more weight. (PyTorch's interleaved layout
// always has equal numbers, because it repeats samples.)
int checks_shares(const Strategy *strategy, Error *err) {
    const Sampler *sampler = strategy->sampler;
    size_t ranks = (size_t)sampler->world;
    for (size_t i = 0; !strategy->global_mean && i < sampler->batch_count; i++)
        if (sampler->global[i] % ranks != 0)
            return error_set(
                err, STATUS_USAGE,
                "%s of %zu rows does not divide among %zu ranks: use --normalize global",
                i > 0 ? "the last batch" : "a batch", sampler->global[i], ranks);
    return 0;
}

// ---- outputs ----------------------------------------------------------------------------------

int checks_outputs(const TrainConfig *config, Error *err) {
    // {step} in the name of dump_grads does not matter here.
    const char *paths[] = {config->save, config->trace, config->dump_grads};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        AtomicFile file;
        if (!paths[i]) continue;
        if (file_begin(&file, paths[i], err) != 0) return -1;
        file_abandon(&file);
    }
    return 0;
}

// ---- resuming ---------------------------------------------------------------------------------

// The effect of a setting that differs from the checkpoint's. Another order of the samples
// would repeat some in an epoch, and another text has other tokens: another run.
typedef enum Effect { ANOTHER_RUN, OTHER_BITS, SAME_RUN } Effect;

typedef struct Setting {
    const char *what;
    Effect effect;
    const char *saved, *now; // saved "": the checkpoint is older than the setting
} Setting;

// Logs a difference, or returns -1 with err filled if it makes another run.
static int check_setting(const char *path, const Setting *s, RunLog *log, Error *err) {
    if (!*s->saved || strcmp(s->saved, s->now) == 0) return 0;
    if (s->effect == ANOTHER_RUN)
        return error_set(err, STATUS_USAGE,
                         "%s: was made with %s %s, this run has %s: it would not continue but "
                         "become another run",
                         path, s->what, s->saved, s->now);
    log_say(log, "%s was made with %s %s, this run has %s: it continues%s", path, s->what, s->saved,
            s->now, s->effect == OTHER_BITS ? ", but not bit for bit" : " with the new value");
    return 0;
}

static const char *decimal(char text[24], uint64_t number) {
    snprintf(text, 24, "%ju", (uintmax_t)number);
    return text;
}

int checks_resumed(const char *path, const Progress *saved, const Progress *now, RunLog *log,
                   Error *err) {
    char a[5][24], b[5][24];
    const char(*was)[32] = saved->notes, (*is_now)[32] = now->notes;
    const Setting settings[] = {
        {"--seed", ANOTHER_RUN, decimal(a[0], saved->seed), decimal(b[0], now->seed)},
        {"--global-batch", ANOTHER_RUN, decimal(a[1], saved->global_batch),
         decimal(b[1], now->global_batch)},
        {"training samples", ANOTHER_RUN, decimal(a[2], saved->samples),
         decimal(b[2], now->samples)},
        {"shuffling (1: on)", ANOTHER_RUN, decimal(a[3], saved->shuffled),
         decimal(b[3], now->shuffled)},
        {"devices", OTHER_BITS, decimal(a[4], saved->devices), decimal(b[4], now->devices)},
        {"--lr", SAME_RUN, was[NOTE_LR], is_now[NOTE_LR]},
        {"--schedule", SAME_RUN, was[NOTE_SCHEDULE], is_now[NOTE_SCHEDULE]},
        {"--momentum", SAME_RUN, was[NOTE_MOMENTUM], is_now[NOTE_MOMENTUM]},
        {"--weight-decay", SAME_RUN, was[NOTE_WEIGHT_DECAY], is_now[NOTE_WEIGHT_DECAY]},
        {"--betas", SAME_RUN, was[NOTE_BETAS], is_now[NOTE_BETAS]},
        {"steps in all", SAME_RUN, was[NOTE_STEPS], is_now[NOTE_STEPS]},
        {"--sampler-seed", ANOTHER_RUN, was[NOTE_SAMPLER_SEED], is_now[NOTE_SAMPLER_SEED]},
        {"a text whose hash is", ANOTHER_RUN, was[NOTE_TEXT], is_now[NOTE_TEXT]},
        {"--amp", OTHER_BITS, saved->amp, now->amp},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (check_setting(path, &settings[i], log, err) != 0) return -1;
    if (!*was[NOTE_BETAS] && *is_now[NOTE_BETAS])
        log_say(log,
                "%s was made when Adam's 1 - beta2 was computed from a rounded beta2, this run "
                "computes it in double as PyTorch does: it continues, but not bit for bit",
                path);
    return 0;
}
