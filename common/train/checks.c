/* checks.c: see checks.h. */
#include "common/train/checks.h"

#include <errno.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/memory.h"

// ---- options ----------------------------------------------------------------------------------

static bool is(const char *value, const char *word) {
    return strcmp(value, word) == 0;
}

// Refuses options that were given and that the others leave without effect.
static int check_used(const TrainConfig *config, const Options *options, const DataSource *data,
                      Error *err) {
    const bool sgd = config->optimizer == OPTIMIZER_SGD, pixels = data->train.dense;
    const bool steps = config->schedule == SCHEDULE_STEP;
    const bool polynomial = config->schedule == SCHEDULE_POLYNOMIAL;
    const bool computes = !config->dry_run;
    const bool trains = config->evaluate == NULL, text = data->train.tokens != NULL;
    const OptionUse uses[] = {
        {"epochs", trains, "--evaluate does not train"},
        {"steps", trains, "--evaluate does not train"},
        {"accumulate-steps", trains, "--evaluate does not train"},
        {"clip-grad-norm", trains, "--evaluate does not train"},
        {"drop-last", trains, "--evaluate takes the whole test split"},
        {"sampler-seed", trains, "--evaluate does not train"},
        {"sampler-seed", !config->no_shuffle, "with --no-shuffle there is no order to draw"},
        {"resume", trains, "--evaluate brings its own weights"},
        {"load-init", trains, "--evaluate brings its own weights"},
        {"strip-prefix", config->load_init || config->evaluate,
         "it is for --load-init and --evaluate"},
        {"no-eval", trains, "--evaluate does nothing else"},
        {"save", trains, "--evaluate leaves the weights as they are"},
        {"save-every", trains, "--evaluate leaves the weights as they are"},
        {"keep-epochs", trains, "--evaluate leaves the weights as they are"},
        {"keep-epochs", config->out != NULL, "it needs --out to write to"},
        {"dump-grads", trains, "--evaluate has no gradients"},
        {"dump-images", trains, "--evaluate has no epochs"},
        {"evaluate", computes, "--dry-run computes nothing"},
        {"sample", computes, "--dry-run computes nothing"},
        {"resume", computes, "--dry-run computes nothing"},
        {"save", computes, "--dry-run writes nothing"},
        {"out", computes, "--dry-run writes nothing"},
        {"trace", computes, "--dry-run takes no time"},
        {"profile", computes, "--dry-run takes no time"},
        {"threads", computes, "--dry-run computes nothing"},
        {"dump-grads", computes, "--dry-run has no gradients"},
        {"cuda-graph", computes, "--dry-run takes no step that could be replayed"},
        {"layers", text, "only a gpt has sizes to choose"},
        {"heads", text, "only a gpt has sizes to choose"},
        {"embedding", text, "only a gpt has sizes to choose"},
        {"context", text, "only a gpt has sizes to choose"},
        {"vocabulary", text, "only a gpt has tokens to know"},
        {"sample", text, "only a gpt writes"},
        {"hidden", is(config->model, "mlp"), "only --model mlp has layers of sizes to choose"},
        {"augment", data->train.bytes != NULL, "it moves the pixels of pictures, --data has none"},
        {"epochs", config->steps == 0, "--steps says when the run ends"},
        {"momentum", sgd, "adam and adamw have moments of their own: --betas"},
        {"nesterov", sgd, "it is a momentum of --optimizer sgd"},
        {"betas", !sgd, "they are of --optimizer adam and adamw"},
        {"eps", !sgd, "it is of --optimizer adam and adamw"},
        {"gamma", steps, "it is of --schedule step"},
        {"step-every", steps, "it is of --schedule step"},
        {"power", polynomial, "it is of --schedule polynomial"},
        {"warmup-start", config->warmup_steps > 0, "there is no warm-up without --warmup-steps"},
        {"loss", config->loss == LOSS_AUTO || data->train.classes > 0,
         "--data has no classes to ask for, but numbers"},
        {"loss", config->loss == LOSS_AUTO || !pixels, "pixels have one class each: --loss auto"},
        {"pos-weight", config->loss == LOSS_BCE, "it is of --loss bce"},
        {"ohem-probability", pixels, "--data has no labels of pixels to choose from"},
        {"ohem-probability", config->ohem_threshold <= 0, "--ohem-threshold says the same"},
        {"ignore-label", strcmp(data->name, "pixels") == 0,
         "it is for a folder of pictures and the labels of their pixels"},
        {"ohem-threshold", pixels, "--data has no labels of pixels to choose from"},
        {"ohem-min", pixels, "--data has no labels of pixels to choose from"},
        {"ohem-min", config->ohem_threshold > 0 || config->ohem_probability > 0,
         "without --ohem-threshold all pixels count"},
        {"save-every", config->save || config->out, "it needs --save or --out to save to"},
        {"dump-step", config->dump_grads != NULL, "it needs --dump-grads FILE to write to"},
        {"dump-images", config->out != NULL, "it needs --out to write to"},
        {"dump-images", !config->no_eval, "with --no-eval nothing is predicted"},
        {"dump-images", pixels, "--data has no labels of pixels to draw"},
    };
    return options_check_used(options, uses, sizeof uses / sizeof *uses, err);
}

static int check_parts(const TrainConfig *config, const Strategy *strategy, Error *err) {
    if (config->accumulate_steps <= 1) return 0;
    size_t share = config->global_batch / (size_t)strategy->devices;
    if (config->accumulate_steps <= share) return 0;
    return error_set(err, STATUS_USAGE,
                     "--accumulate-steps %zu: a device has %zu of --global-batch %zu: a part would "
                     "have no sample",
                     config->accumulate_steps, share, config->global_batch);
}

static int check_dump_steps(const TrainConfig *config, size_t total_steps, Error *err) {
    for (const char *at = config->dump_step; *at;) {
        char *end;
        errno = 0;
        unsigned long long step = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || (*end != ',' && *end != '\0') ||
            (*end == ',' && end[1] == '\0'))
            return error_set(err, STATUS_USAGE, "--dump-step %s: expected steps like 0,1,10",
                             config->dump_step);
        if (config->dump_grads && step >= total_steps)
            return error_set(err, STATUS_USAGE, "--dump-step %llu: the run ends with step %zu",
                             step, total_steps - 1);
        at = *end ? end + 1 : end;
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
    if (check_used(config, options, data, err) != 0) return -1;
    if (config->nesterov && config->momentum <= 0)
        return error_set(err, STATUS_USAGE,
                         "--nesterov: Nesterov momentum requires a momentum: --momentum F");
    if (config->warmup_steps > total_steps)
        return error_set(err, STATUS_USAGE,
                         "--warmup-steps %zu: the run has only %zu steps, --lr is never reached",
                         config->warmup_steps, total_steps);
    if (config->resume && config->load_init)
        return error_set(err, STATUS_USAGE,
                         "--resume brings its own weights: --load-init would be overwritten");
    if (config->resume && is(config->resume, "auto") && !config->save && !config->out)
        return error_set(err, STATUS_USAGE,
                         "--resume auto continues what --save or --out wrote: give one of them");
    return check_dump_steps(config, total_steps, err);
}

// A graph holds what is asked of one device in a step, as long as the host need not look at a
// number in between.
static int check_graph(const TrainConfig *config, const DataSource *data, const Strategy *strategy,
                       Error *err) {
    if (device_is_cpu(strategy->device))
        return error_set(err, STATUS_USAGE, "--cuda-graph is for --device cuda, not %s",
                         strategy->device->name);
    if (strategy->all_count > 1)
        return error_set(err, STATUS_USAGE,
                         "--cuda-graph is for one GPU per process, as DistributedDataParallel has "
                         "it: this one uses %d",
                         strategy->all_count);
    if (strategy_check_recordable(strategy, err) != 0) return -1;
    if (data->train.dense)
        return error_set(err, STATUS_USAGE,
                         "--cuda-graph: how many pixels count is known in the middle of a step");
    if (config->amp == PRECISION_F16)
        return error_set(err, STATUS_USAGE,
                         "--cuda-graph: with --amp fp16 the host decides in every step whether the "
                         "optimizer steps; bf16 needs no such decision");
    if (config->accumulate_steps > 1)
        return error_set(err, STATUS_USAGE,
                         "--cuda-graph: with --accumulate-steps a step has parts of its own");
    if (config->profile)
        return error_set(err, STATUS_USAGE,
                         "--cuda-graph: a replayed step has no phases for "
                         "--profile to tell apart");
    return 0;
}

int checks_device(const TrainConfig *config, const DataSource *data, const Strategy *strategy,
                  Error *err) {
    if (config->tf32 && device_is_cpu(strategy->device))
        return error_set(err, STATUS_USAGE, "--tf32 is for --device cuda, not %s",
                         strategy->device->name);
    if (config->threads > 1 && strategy->all_count > 1)
        return error_set(err, STATUS_USAGE,
                         "--threads is for one device per process: the %d of this one would take "
                         "turns with the same threads",
                         strategy->all_count);
    if (config->link && is(strategy->name, "single"))
        return error_set(err, STATUS_USAGE,
                         "--link is for train_dp and train_ddp: one device has nothing to send");
    if (check_parts(config, strategy, err) != 0) return -1;
    return config->cuda_graph ? check_graph(config, data, strategy, err) : 0;
}

// A process with fewer rows would give each of them more weight. (PyTorch's interleaved layout
// cannot have this: it repeats samples until all ranks have the same number.)
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

static int can_write(const char *path, Error *err) {
    AtomicFile file;
    if (!path) return 0;
    if (file_begin(&file, path, err) != 0) return -1;
    file_abandon(&file);
    return 0;
}

int checks_outputs(const TrainConfig *config, Error *err) {
    if (can_write(config->save, err) != 0 || can_write(config->trace, err) != 0) return -1;
    return can_write(config->dump_grads, err); // {step} in the name changes nothing here
}

// ---- the same options everywhere --------------------------------------------------------------

static bool names_a_file(const Option *option) {
    const char *names[] = {"out", "save", "trace", "dump-grads", "save-init", "load-init"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(option->name, names[i]) == 0) return true;
    return false;
}

// A number that two different values hardly share, small enough that a sum over ranks is exact.
static double fingerprint(const Option *option) {
    static const size_t SIZES[] = {
        [OPTION_FLAG] = sizeof(bool),    [OPTION_INT] = sizeof(int),
        [OPTION_SIZE] = sizeof(size_t),  [OPTION_U64] = sizeof(uint64_t),
        [OPTION_FLOAT] = sizeof(double), [OPTION_PAIR] = 2 * sizeof(double),
        [OPTION_ENUM] = sizeof(int)};
    bool is_text = option->type == OPTION_STRING || option->type == OPTION_CHOICE;
    const char *text = is_text ? *(const char *const *)option->value : NULL;
    const unsigned char *bytes = is_text ? (const void *)text : option->value;
    size_t count = is_text ? (text ? strlen(text) : 0) : SIZES[option->type];
    uint64_t hash = hash_bytes(HASH_START, bytes, count);
    return (double)(uint32_t)(hash ^ (hash >> 32));
}

int checks_same_options(Strategy *strategy, const Options *options, Error *err) {
    double *sums = memory_zalloc((options->count + 1) * sizeof *sums);
    for (size_t i = 0; i < options->count; i++)
        if (options->table[i].type != OPTION_TITLE && !names_a_file(&options->table[i]))
            sums[i] = fingerprint(&options->table[i]);
    double *mine = memory_zalloc((options->count + 1) * sizeof *mine);
    memcpy(mine, sums, options->count * sizeof *mine);
    sums[options->count] = 1; // counts the ranks
    int failed = strategy_sum(strategy, sums, options->count + 1, err);
    for (size_t i = 0; !failed && i < options->count; i++)
        if (sums[i] != sums[options->count] * mine[i])
            failed = error_set(err, STATUS_USAGE,
                               "--%s differs between the ranks: all must be started alike",
                               options->table[i].name);
    free(sums);
    free(mine);
    return failed;
}

// ---- resuming ---------------------------------------------------------------------------------

// Compares what the run may change on its way: it goes on, and says so. But another order of the
// samples would show some of them twice in an epoch, and in another text the tokens mean something
// else: these are errors.
static int compare_notes(const char *path, const Progress *saved, const Progress *now, Log *log,
                         Error *err) {
    static const char *const WHAT[PROGRESS_NOTES] = {
        [NOTE_LR] = "--lr",
        [NOTE_SCHEDULE] = "--schedule",
        [NOTE_MOMENTUM] = "--momentum",
        [NOTE_WEIGHT_DECAY] = "--weight-decay",
        [NOTE_STEPS] = "steps in all",
        [NOTE_SAMPLER_SEED] = "--sampler-seed",
        [NOTE_TEXT] = "a text whose hash is",
    };
    for (int i = 0; i < PROGRESS_NOTES; i++) {
        const char *was = saved->notes[i], *is_now = now->notes[i];
        if (!*was || strcmp(was, is_now) == 0) continue; // "": older than the note
        if (i == NOTE_SAMPLER_SEED || i == NOTE_TEXT)
            return error_set(err, STATUS_USAGE,
                             "%s: was made with %s %s, this run has %s: it would not continue but "
                             "become another run",
                             path, WHAT[i], was, is_now);
        log_say(log, "%s was made with %s %s, this run has %s: it goes on with that", path, WHAT[i],
                was, is_now);
    }
    return 0;
}

int checks_resumed(const char *path, const Progress *saved, const Progress *now,
                   size_t batches_per_epoch, Log *log, Error *err) {
    const struct {
        const char *what;
        uint64_t saved, now;
        bool breaks; // the run would become another one
    } facts[] = {
        {"--seed", saved->seed, now->seed, true},
        {"--global-batch", saved->global_batch, now->global_batch, true},
        {"training samples", saved->samples, now->samples, true},
        {"shuffling (1: on)", saved->shuffled, now->shuffled, true},
        {"devices", saved->devices, now->devices, false},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        if (facts[i].saved == facts[i].now) continue;
        if (facts[i].breaks)
            return error_set(err, STATUS_USAGE,
                             "%s: was made with %s %llu, this run has %llu: it would not continue "
                             "but become another run",
                             path, facts[i].what, (unsigned long long)facts[i].saved,
                             (unsigned long long)facts[i].now);
        log_say(log,
                "%s was made with %s %llu, this run has %llu: it continues, but not bit for bit",
                path, facts[i].what, (unsigned long long)facts[i].saved,
                (unsigned long long)facts[i].now);
    }
    if (compare_notes(path, saved, now, log, err) != 0) return -1;
    if (strcmp(saved->amp, now->amp) != 0)
        log_say(log,
                "%s was made with --amp %s, this run has %s: it continues, but not bit for bit",
                path, saved->amp, now->amp);
    // --save-every may have saved behind the last batch, before the epoch was ended.
    if (saved->batch > batches_per_epoch)
        return error_set(err, STATUS_USAGE, "%s: stands at batch %llu of an epoch of %zu", path,
                         (unsigned long long)saved->batch, batches_per_epoch);
    return 0;
}
