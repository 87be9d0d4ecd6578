/* trainer.c: the training loop. It knows batches, a module, a loss and an optimizer, and nothing of
 * parallelism: whatever spreads the work does so inside strategy->module and the strategy's calls.
 */
#include "common/train/trainer.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/trace_merge.h"
#include "common/data/loader.h"
#include "common/train/checkpoint.h"
#include "common/train/checks.h"
#include "common/train/images.h"
#include "common/train/metrics.h"
#include "common/train/record.h"
#include "common/train/train_step.h"

enum { LOADER_DEPTH = 2, EVALUATION_BATCH = 256, TRACE_SPANS = 1 << 16 };

typedef struct Row { // of the records, on its way
    bool known;      // there is such a step, whose loss nobody has looked at yet
    bool sent;       // its sums are being added up over the ranks
    double sums[2];  // losses, and how many they are
    StepRecord step;
    Profile profile;
} Row;

typedef struct Trainer {
    const TrainConfig *config;
    const DataSource *data;
    Strategy *strategy;
    TrainStep *train;
    Profile profile;
    Trace *trace; // NULL: none asked for
    Optimizer *optimizer;
    Schedule schedule;
    Sampler *sampler;
    Loader *loader;
    Augment augment;
    Record record;
    Row next, row; // of the last step, and of one that is being added up
    Progress progress;
    bool owns_folder, owns_last; // --out's checkpoints, and the last one there, are this run's
    bool saves_last, saves_best; // the main rank does, if this is another
    size_t total_steps;
} Trainer;

// Says what comes now, where somebody watches over this process.
static void enter(const Trainer *t, const char *phase) {
    if (t->strategy->enter) t->strategy->enter(t->strategy, phase, t->progress.step);
}

// ---- one step ---------------------------------------------------------------------------------

// A step's row of the records needs the mean loss over the ranks. They may have different numbers
// of samples or pixels, so sums and numbers are added up apart, and no rank waits for it.
static int send_row(Trainer *t, const StepLoss *loss, Error *err) {
    t->row = t->next;
    t->row.sums[0] = loss->sum;
    t->row.sums[1] = (double)loss->count;
    if (t->strategy->reduce_start(t->strategy, t->row.sums, 2, err) != 0) return -1;
    t->row.sent = true;
    return 0;
}

static int finish_row(Trainer *t, Error *err) {
    Row *row = &t->row;
    if (!row->sent) return 0;
    row->sent = false;
    if (t->strategy->reduce_wait(t->strategy, err) != 0) return -1;
    row->step.loss = row->sums[1] > 0 ? row->sums[0] / row->sums[1] : 0;
    record_step(&t->record, &row->step, &row->profile);
    return 0;
}

// Looks at the loss of the step that was run `back` steps before the last one.
static int look_at_loss(Trainer *t, int back, Error *err) {
    Row *next = &t->next;
    if (!next->known) return 0;
    next->known = false;
    StepLoss loss = train_step_loss(t->train, back);
    if (!isfinite(loss.mean))
        return error_set(err, STATUS_FAILED,
                         "the loss is %f at step %llu (epoch %llu, lr %g): training has diverged",
                         loss.mean, (unsigned long long)next->step.step,
                         (unsigned long long)next->step.epoch, next->step.lr);
    bool last = next->step.step + 1 == t->total_steps;
    if (next->step.step % t->config->log_every != 0 && !last) return 0;
    return send_row(t, &loss, err);
}

// Afterwards no step's loss is on its way: every row up to here is written.
static int settle(Trainer *t, Error *err) {
    if (finish_row(t, err) != 0 || look_at_loss(t, 0, err) != 0) return -1;
    return finish_row(t, err);
}

static int train_step(Trainer *t, Error *err) {
    double lr = schedule_lr(&t->schedule, t->progress.step);
    enter(t, "train");
    profile_begin_step(&t->profile);
    Phase phase = profile_enter(&t->profile, PHASE_DATA);
    train_step_wait_batch(t->train);
    const Batch *batch = loader_next(t->loader);
    CHECK(batch, "the epoch has no batch %llu", (unsigned long long)t->progress.batch);
    profile_leave(&t->profile, phase);
    // The collectives of a replayed step may not overtake one that is still on its way.
    if (t->config->cuda_graph && finish_row(t, err) != 0) return -1;
    if (train_step_run(t->train, batch, lr, err) != 0) return -1;
    // Where the device works on its own, the loss is looked at a step later, by when it is nearly
    // known. The wait for it is part of this step: so the steps' times add up to the run's.
    const bool later = !t->strategy->device->kernels->host_memory;
    if (later && t->next.known) (void)train_step_loss(t->train, 1);
    uint64_t ns = profile_end_step(&t->profile);
    record_step_time(&t->record, ns);
    if (record_gradients(&t->record, t->strategy->model, t->progress.step, err) != 0) return -1;
    Row now = {.known = true,
               .profile = t->profile,
               .step = {.step = t->progress.step,
                        .epoch = t->progress.epoch,
                        .lr = lr,
                        .scale = train_step_scale(t->train),
                        .ns = ns,
                        .samples = batch->global_count}};
    if (!later) t->next = now;
    if (finish_row(t, err) != 0 || look_at_loss(t, later ? 1 : 0, err) != 0) return -1;
    if (later) t->next = now;
    t->progress.step++;
    t->progress.batch++;
    log_progress(&t->record.log, t->progress.step, t->total_steps, "steps",
                 (double)t->config->global_batch);
    return 0;
}

// ---- evaluation -------------------------------------------------------------------------------

static Module *evaluation_module(const Strategy *strategy) {
    return strategy->evaluation_module ? strategy->evaluation_module : strategy->module;
}

static int evaluate_batches(Trainer *t, Loader *loader, Metrics *metrics, Error *err) {
    Tape *tape = train_step_tape(t->train);
    Module *module = evaluation_module(t->strategy);
    BatchInput *input =
        batch_input_create(t->strategy->device, &t->data->test, loader_capacity(loader));
    loader_start(loader, 0, 0);
    int failed = 0;
    for (const Batch *batch; !failed && (batch = loader_next(loader));) {
        BatchLoss loss;
        enter(t, "evaluate");
        batch_input_send(input, batch);
        failed = batch_loss(&loss, tape, module, input, NULL, NULL, err);
        if (!failed) metrics_add(metrics, tape, batch, &loss);
        tape_reset(tape);
        batch_input_used(input);
        batch_input_wait(input);
    }
    batch_input_close(input);
    return failed;
}

// This rank's part of the test split.
static int evaluate_part(Trainer *t, Metrics *metrics, Error *err) {
    Strategy *strategy = t->strategy;
    bool alone = !strategy->evaluation_module; // one process evaluates everything
    Sampler *part = sampler_evaluation(t->data->test.count, EVALUATION_BATCH,
                                       alone ? 1 : strategy->devices, alone ? 0 : strategy->rank);
    Loader *loader = loader_create(&t->data->test, part, NULL, LOADER_DEPTH, strategy->device);
    int failed = evaluate_batches(t, loader, metrics, err);
    loader_close(loader);
    sampler_close(part);
    return failed;
}

static int evaluate(Trainer *t, Evaluation *result, Error *err) {
    Strategy *strategy = t->strategy;
    enter(t, "evaluate");
    if (strategy->sync_buffers(strategy, err) != 0) return -1;
    Metrics metrics = metrics_open(&t->data->test);
    Tape *tape = train_step_tape(t->train);
    tape->recording = tape->training = false;
    int failed = evaluate_part(t, &metrics, err);
    tape->recording = tape->training = true;
    if (!failed) failed = metrics_reduce(&metrics, strategy, err);
    if (!failed) *result = metrics_result(&metrics);
    metrics_close(&metrics);
    return failed;
}

// The epoch that the last step belonged to, from 0.
static uint64_t last_epoch(const Trainer *t) {
    return t->progress.batch == 0 && t->progress.epoch > 0 ? t->progress.epoch - 1
                                                           : t->progress.epoch;
}

// Every so many epochs, pictures of what the model makes of some test images.
static int write_images(Trainer *t, Error *err) {
    size_t every = t->config->dump_images;
    if (!every || t->progress.epoch % every != 0 || !strategy_is_main(t->strategy)) return 0;
    return images_write(t->config->out, last_epoch(t), evaluation_module(t->strategy),
                        train_step_tape(t->train), &t->data->test, err);
}

// ---- checkpoints ------------------------------------------------------------------------------

// Every rank takes part in saving what the strategy carries, and its own --out and --save may name
// other files than the main rank's, or none.
static int agree_on_saves(Trainer *t, Error *err) {
    bool here = strategy_is_main(t->strategy);
    double saves[] = {here && (t->config->save || t->config->out), here && t->config->out};
    if (t->strategy->reduce(t->strategy, saves, 2, err) != 0) return -1;
    t->saves_last = saves[0] > 0;
    t->saves_best = saves[1] > 0;
    return 0;
}

// Before the first save into a folder that another run used: its checkpoints, which may have more
// steps, must not pass for this run's. Its last one stays until this run's replaces it.
static void take_over_folder(Trainer *t) {
    if (t->owns_folder) return;
    t->owns_folder = true;
    char *previous = memory_format("%s/previous.safetensors", t->config->out);
    char *best = memory_format("%s/best.safetensors", t->config->out);
    checkpoint_remove(previous);
    checkpoint_remove(best);
    free(previous);
    free(best);
}

// Writes DIR/NAME.safetensors; what it replaces becomes DIR/previous.safetensors if asked.
static int save_in_folder(Trainer *t, const char *name, bool keep_previous,
                          const SafeTensors *state, Error *err) {
    take_over_folder(t);
    char *path = memory_format("%s/%s.safetensors", t->config->out, name);
    char *previous = memory_format("%s/previous.safetensors", t->config->out);
    int failed = checkpoint_save(path, keep_previous ? previous : NULL, t->strategy->model,
                                 t->optimizer, state, &t->progress, err);
    free(path);
    free(previous);
    return failed;
}

// Writes DIR/last.safetensors, or --save's file.
static int write_last(Trainer *t, const SafeTensors *state, Error *err) {
    const TrainConfig *config = t->config;
    if (config->save)
        return checkpoint_save(config->save, NULL, t->strategy->model, t->optimizer, state,
                               &t->progress, err);
    bool keep_previous = t->owns_last;
    t->owns_last = true;
    return save_in_folder(t, "last", keep_previous, state, err);
}

// The main rank writes the best or the last checkpoint, with what all ranks carry. A rank that dies
// before they have handed it over leaves every file as it is.
static int save(Trainer *t, bool best, Error *err) {
    Strategy *strategy = t->strategy;
    bool wanted = best ? t->saves_best : t->saves_last, here = strategy_is_main(strategy);
    if (!wanted || (!here && !strategy->save_state)) return 0;
    enter(t, "checkpoint");
    train_step_save(t->train, &t->progress);
    SafeTensors state = {0};
    if (strategy->save_state && strategy->save_state(strategy, &state, err) != 0) return -1;
    int failed = 0;
    if (here)
        failed = best ? save_in_folder(t, "best", false, &state, err) : write_last(t, &state, err);
    safetensors_free(&state);
    return failed;
}

// What the best checkpoint is the best of: mean IoU of pixels, accuracy of samples, or the loss.
static double best_score(const Dataset *set, const Evaluation *evaluation) {
    if (set->dense) return evaluation->mean_iou;
    return set->classes ? evaluation->accuracy : -evaluation->loss;
}

static int save_if_best(Trainer *t, const Evaluation *evaluation, Error *err) {
    double score = best_score(&t->data->test, evaluation);
    if (!(score > t->progress.best)) return 0;
    t->progress.best = score;
    return save(t, true, err);
}

// The checkpoint that --resume means: *path, free() it; NULL: auto, and there is none yet.
static int choose_checkpoint(Trainer *t, char **path, Error *err) {
    const TrainConfig *config = t->config;
    bool automatic = strcmp(config->resume, "auto") == 0;
    const char *place = config->resume;
    if (automatic) place = config->save ? config->save : config->out;
    struct stat info;
    *path = NULL;
    bool there = stat(place, &info) == 0;
    if (automatic && !there && errno == ENOENT) return 0;
    if (!there || !S_ISDIR(info.st_mode)) {
        *path = memory_format("%s", place); // if it is not there, loading it says so
        return 0;
    }
    if (checkpoint_find(place, path, &t->record.log, err) != 0) return -1;
    if (*path || automatic) return 0;
    return error_set(err, STATUS_USAGE, "%s: holds no checkpoint", place);
}

static bool lies_in(const char *path, const char *folder) {
    char *parent = memory_format("%s", path), *slash = strrchr(parent, '/');
    if (slash) slash[1] = '\0';
    struct stat a, b;
    bool same = stat(slash ? parent : ".", &a) == 0 && stat(folder, &b) == 0 &&
                a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    free(parent);
    return same;
}

static int load_state(Trainer *t, const char *path, const SafeTensors *state, Error *err) {
    Strategy *strategy = t->strategy;
    if (strategy->load_state)
        return strategy->load_state(strategy, path, state, &t->record.log, err);
    if (state->count > 0)
        log_say(&t->record.log,
                "%s also holds %s and the like, which this run has no use for: it continues, but "
                "not bit for bit",
                path, state->entries[0].name);
    return 0;
}

static int load(Trainer *t, const char *path, SafeTensors *state, Error *err) {
    const TrainConfig *config = t->config;
    Progress now = t->progress;
    train_step_save(t->train, &now);
    if (checkpoint_load(path, t->strategy->model, t->optimizer, state, &t->progress, err) != 0)
        return -1;
    if (checks_resumed(path, &t->progress, &now, t->sampler->batch_count, &t->record.log, err) != 0)
        return -1;
    if (train_step_load(t->train, &t->progress, err) != 0) return -1;
    t->progress.devices = now.devices;
    t->owns_folder = t->owns_last = config->out && lies_in(path, config->out);
    log_say(&t->record.log, "resumed %s at step %llu", path, (unsigned long long)t->progress.step);
    return load_state(t, path, state, err);
}

static int resume(Trainer *t, Error *err) {
    char *path;
    SafeTensors state = {0};
    if (choose_checkpoint(t, &path, err) != 0) return -1;
    int failed = 0;
    if (path) failed = load(t, path, &state, err);
    if (!path) log_say(&t->record.log, "nothing to resume yet: starting at step 0");
    free(path);
    safetensors_free(&state);
    if (failed) return failed;
    return checks_same_checkpoint(t->strategy, t->config->resume, &t->progress, err);
}

// ---- the run ----------------------------------------------------------------------------------

// Steps until the epoch or the run ends.
static int train_epoch(Trainer *t, Error *err) {
    loader_start(t->loader, t->progress.epoch, t->progress.batch);
    while (t->progress.batch < t->sampler->batch_count && t->progress.step < t->total_steps) {
        if (train_step(t, err) != 0) return -1;
        bool due = t->config->save_every && t->progress.step % t->config->save_every == 0;
        // Its rows are there before a checkpoint is.
        if (due && (settle(t, err) != 0 || save(t, false, err) != 0)) return -1;
    }
    return settle(t, err);
}

static int train(Trainer *t, Evaluation *evaluation, Error *err) {
    do { // once at least: a run resumed at its last step may have died before its evaluation
        if (train_epoch(t, err) != 0) return -1;
        if (t->progress.batch == t->sampler->batch_count) { // else --steps ended the run inside it
            t->progress.epoch++;
            t->progress.batch = 0;
        }
        if (!t->config->no_eval) {
            if (evaluate(t, evaluation, err) != 0) return -1;
            record_evaluation(&t->record, last_epoch(t), evaluation);
            if (save_if_best(t, evaluation, err) != 0) return -1;
            if (write_images(t, err) != 0) return -1;
        }
        if (save(t, false, err) != 0) return -1;
    } while (t->progress.step < t->total_steps);
    return 0;
}

static size_t count_parameters(Module *model) {
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    size_t count = 0;
    for (size_t i = 0; i < parameters.count; i++) count += tensor_count(parameters.items[i].tensor);
    named_tensors_free(&parameters);
    return count;
}

// Peak memory of every device: this process's devices, or one of each rank, found by a sum over a
// vector in which each rank fills its own place.
static int gather_peaks(const Trainer *t, Summary *summary, Error *err) {
    Strategy *strategy = t->strategy;
    size_t devices = (size_t)strategy->devices;
    double *values = memory_zalloc((devices + 1) * sizeof *values);
    for (int i = 0; i < strategy->all_count; i++)
        values[strategy->rank + i] = (double)strategy->all[i]->peak_bytes;
    values[devices] =
        (double)(strategy->moved_bytes(strategy) + train_step_replayed_bytes(t->train));
    int failed = strategy->reduce(strategy, values, devices + 1, err);
    summary->peak_bytes_device0 = values[0];
    summary->peak_bytes_other = devices > 1 ? 0 : NAN;
    for (size_t i = 1; i < devices; i++)
        summary->peak_bytes_other = fmax(summary->peak_bytes_other, values[i]);
    summary->moved_bytes = values[devices];
    free(values);
    return failed;
}

static int summarise(Trainer *t, const Evaluation *evaluation, Error *err) {
    Summary summary = {.profile = &t->profile,
                       .steps = t->profile.steps,
                       .parameters = count_parameters(t->strategy->model),
                       .samples_per_step = t->config->global_batch,
                       .best = t->progress.best,
                       .scale = train_step_scale(t->train),
                       .skipped_steps = train_step_skipped(t->train),
                       .test = *evaluation,
                       .has_accuracy = t->data->test.classes > 0 && !t->data->test.dense,
                       .has_mean_iou = t->data->test.dense};
    if (gather_peaks(t, &summary, err) != 0) return -1;
    trace_mark(t->trace); // all ranks have just waited for each other
    return record_summary(&t->record, &summary, err);
}

static int write_trace(Trainer *t, Error *err) {
    if (!t->trace) return 0;
    char *path = trace_part(t->config->trace, t->strategy->rank);
    int failed = trace_write(t->trace, path, err);
    free(path);
    return failed;
}

// All ranks have written theirs: the main one makes one file of them.
static int merge_traces(Trainer *t, Error *err) {
    const Strategy *strategy = t->strategy;
    int processes = strategy->devices / strategy->all_count;
    if (!t->trace || !strategy_is_main(strategy) || processes == 1) return 0;
    int missing = trace_merge_ranks(t->config->trace, processes, err);
    if (missing > 0)
        log_say(&t->record.log,
                "%s: the parts of %d other rank%s are not on this machine; merge_traces adds them",
                t->config->trace, missing, missing == 1 ? "" : "s");
    return missing < 0 ? -1 : 0;
}

static void announce(Trainer *t) {
    const Strategy *s = t->strategy;
    char blas[160];
    s->device->kernels->describe(blas, sizeof blas);
    size_t devices = (size_t)s->devices;
    log_say(&t->record.log, "%s: %s on %s, %zu parameters; %d device%s (%s); %s", s->name,
            t->config->model, t->data->name, count_parameters(s->model), s->devices,
            s->devices == 1 ? "" : "s", s->device->kernels->name, blas);
    log_say(&t->record.log, "global batch %zu, %zu per device; %zu batches per epoch, %zu steps",
            t->config->global_batch, (t->config->global_batch + devices - 1) / devices,
            t->sampler->batch_count, t->total_steps);
}

// ---- opening and closing ----------------------------------------------------------------------

static void synchronize(void *strategy) {
    const Strategy *s = strategy;
    for (int i = 0; i < s->all_count; i++) device_synchronize(s->all[i]);
}

// Where a device works on its own, phases are those of asking, unless it is waited for at the end
// of each: that makes a run slower, and its phases true.
static void open_profile(Trainer *t) {
    Strategy *strategy = t->strategy;
    if (t->config->profile && !strategy->device->kernels->host_memory) {
        t->profile.wait_for_device = synchronize;
        t->profile.wait_context = strategy;
    }
    if (!t->config->trace) return;
    char name[64];
    snprintf(name, sizeof name, "%s rank %d", strategy->name, strategy->rank);
    t->trace = trace_open(strategy->rank, name);
    t->profile.trace = t->trace;
    t->profile.track = trace_track(t->trace, "main", TRACE_SPANS);
    strategy->set_trace(strategy, t->trace);
}

static void open_optimizer(Trainer *t) {
    const TrainConfig *config = t->config;
    OptimizerConfig optimizer = {.kind = config->optimizer,
                                 .momentum = config->momentum,
                                 .nesterov = config->nesterov,
                                 .weight_decay = config->weight_decay,
                                 .beta1 = config->betas[0],
                                 .beta2 = config->betas[1],
                                 .eps = config->eps};
    t->optimizer = optimizer_create(t->strategy->model, &optimizer);
    t->schedule =
        (Schedule){.kind = config->schedule,
                   .lr = config->lr,
                   .warmup_steps = config->warmup_steps,
                   .warmup_start = config->warmup_start,
                   .total_steps = t->total_steps,
                   .step_every = config->step_every ? config->step_every : t->total_steps / 3 + 1,
                   .gamma = config->gamma,
                   .power = config->power};
}

static int trainer_open(Trainer *t, const Options *options, Error *err) {
    const TrainConfig *config = t->config;
    Strategy *strategy = t->strategy;
    if (checks_same_options(strategy, options, err) != 0) return -1;
    if (checks_same_data(strategy, config, t->data, err) != 0) return -1;
    t->sampler = strategy->sampler(strategy, t->data->train.count, config->global_batch,
                                   !config->no_shuffle, config->seed, err);
    if (!t->sampler) return -1;
    t->total_steps = config->steps ? config->steps : config->epochs * t->sampler->batch_count;
    if (checks_config(config, options, t->data, t->total_steps, err) != 0 ||
        checks_device(config, t->data, strategy, err) != 0)
        return -1;
    if (strategy_is_main(strategy) && checks_outputs(config, err) != 0) return -1;
    t->augment = (Augment){.crop_pad = 4, .flip = true, .seed = config->seed};
    t->loader = loader_create(&t->data->train, t->sampler, config->augment ? &t->augment : NULL,
                              LOADER_DEPTH, strategy->device);
    t->progress = (Progress){.seed = config->seed,
                             .global_batch = config->global_batch,
                             .samples = t->data->train.count,
                             .shuffled = !config->no_shuffle,
                             .devices = (uint64_t)strategy->devices,
                             .best = -INFINITY};
    open_optimizer(t);
    open_profile(t);
    t->train = train_step_create(config, strategy, t->optimizer, &t->profile, &t->data->train,
                                 loader_capacity(t->loader));
    if (record_open(&t->record, config, options, strategy, t->total_steps, err) != 0) return -1;
    announce(t);
    if (agree_on_saves(t, err) != 0) return -1;
    trace_mark(t->trace); // all ranks have just waited for each other
    if (config->resume && resume(t, err) != 0) return -1;
    return record_start(&t->record, t->progress.step, err);
}

static void trainer_close(Trainer *t) {
    Error lost = {0};
    finish_row(t, &lost); // of a run that failed: its last row, if it still came through
    record_close(&t->record);
    train_step_close(t->train);
    loader_close(t->loader);
    sampler_close(t->sampler);
    optimizer_close(t->optimizer);
    trace_close(t->trace);
}

int trainer_run(const TrainConfig *config, const Options *options, const DataSource *data,
                Strategy *strategy, Error *err) {
    Trainer trainer = {.config = config, .data = data, .strategy = strategy};
    Evaluation evaluation = {NAN, NAN, NAN};
    int failed = trainer_open(&trainer, options, err);
    if (!failed) failed = train(&trainer, &evaluation, err);
    if (!failed) enter(&trainer, "shutdown");
    if (!failed) failed = summarise(&trainer, &evaluation, err);
    if (!failed) failed = write_trace(&trainer, err);
    if (!failed) failed = strategy->barrier(strategy, err);
    if (!failed) failed = merge_traces(&trainer, err);
    if (failed && strategy->give_up) strategy->give_up(strategy, err);
    trainer_close(&trainer);
    return failed;
}
