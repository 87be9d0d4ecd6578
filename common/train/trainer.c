/* trainer.c: the training loop. It knows batches, a module, a loss and an optimizer, and nothing of
 * parallelism: whatever spreads the work does so inside strategy->module and the strategy's calls.
 */
#include "common/train/trainer.h"

#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/data/loader.h"
#include "common/nn/ops.h"
#include "common/train/checkpoint.h"
#include "common/train/record.h"

enum { LOADER_DEPTH = 2, EVALUATION_BATCH = 256, TRACE_SPANS = 1 << 16 };

typedef struct Trainer {
    const TrainConfig *config;
    const DataSource *data;
    Strategy *strategy;
    Tape *tape;
    Profile profile;
    Trace *trace; // NULL: none asked for
    Optimizer *optimizer;
    Schedule schedule;
    Sampler *sampler;
    Loader *loader;
    Augment augment;
    Record record;
    Progress progress;
    size_t total_steps;
} Trainer;

// ---- one batch --------------------------------------------------------------------------------

static Tensor *batch_input(Tape *tape, const Batch *batch) {
    const size_t *sample = batch->set->shape;
    Tensor *x =
        tape_input(tape, DTYPE_F32, 4, (size_t[]){batch->count, sample[0], sample[1], sample[2]},
                   batch->samples);
    return x;
}

// The loss of a batch's outputs, as a mean over `rows` rows (which may be more than the batch has).
static Tensor *batch_loss(Tape *tape, const Batch *batch, Tensor *outputs, double rows) {
    Phase phase = profile_enter(tape->profile, PHASE_LOSS);
    Tensor *loss;
    if (batch->labels) {
        Tensor *target = tape_input(tape, DTYPE_I64, 1, &batch->count, batch->labels);
        loss = op_cross_entropy(tape, outputs, target, rows);
    } else {
        size_t size = batch->set->target_size;
        Tensor *target =
            tape_input(tape, DTYPE_F32, 2, (size_t[]){batch->count, size}, batch->targets);
        loss = op_squared_error(tape, outputs, target, rows * (double)size);
    }
    profile_leave(tape->profile, phase);
    return loss;
}

// Runs a module on a batch. Returns the loss, or NULL with err filled.
static Tensor *forward(Tape *tape, Module *module, const Batch *batch, double rows,
                       Tensor **outputs, Error *err) {
    Phase phase = profile_enter(tape->profile, PHASE_DATA);
    Tensor *x = batch_input(tape, batch);
    profile_enter(tape->profile, PHASE_FORWARD);
    *outputs = module_forward(module, tape, x);
    profile_leave(tape->profile, phase);
    Tensor *loss = batch_loss(tape, batch, *outputs, rows);
    return tape_error(tape, err) == 0 ? loss : NULL;
}

// ---- one step ---------------------------------------------------------------------------------

// Forward, backward, reduce: afterwards the model's gradients are those of the global batch.
// *loss_sum gets the sum of this rank's row losses.
static int compute_gradients(Trainer *t, const Batch *batch, double *loss_sum, Error *err) {
    Strategy *strategy = t->strategy;
    double rows = strategy->loss_rows(strategy, batch->count, batch->global_count);
    Tensor *outputs;
    tape_reset(t->tape);
    module_zero_grad(strategy->model);
    Tensor *loss = forward(t->tape, strategy->module, batch, rows, &outputs, err);
    if (!loss) return -1;
    double value = (double)tensor_item(loss);
    *loss_sum = value * rows;
    if (!isfinite(value))
        return error_set(err, STATUS_FAILED,
                         "the loss is %f at step %llu (epoch %llu, lr %g): training has diverged",
                         value, (unsigned long long)t->progress.step,
                         (unsigned long long)t->progress.epoch,
                         schedule_lr(&t->schedule, t->progress.step));
    if (tape_backward(t->tape, loss, err) != 0) return -1;
    return strategy->finish_backward(strategy, t->tape, err);
}

// The mean loss over the ranks, for a row of the records.
static int log_step(Trainer *t, const Batch *batch, double loss_sum, double lr, uint64_t ns,
                    Error *err) {
    if (t->strategy->reduce(t->strategy, &loss_sum, 1, err) != 0) return -1;
    StepRecord step = {.step = t->progress.step,
                       .epoch = t->progress.epoch,
                       .lr = lr,
                       .loss = loss_sum / (double)batch->global_count,
                       .ns = ns,
                       .samples = batch->global_count};
    record_step(&t->record, &step, &t->profile);
    return 0;
}

static int train_step(Trainer *t, Error *err) {
    double lr = schedule_lr(&t->schedule, t->progress.step);
    double loss_sum;
    profile_begin_step(&t->profile);
    Phase phase = profile_enter(&t->profile, PHASE_DATA);
    const Batch *batch = loader_next(t->loader);
    CHECK(batch, "the epoch has no batch %llu", (unsigned long long)t->progress.batch);
    profile_leave(&t->profile, phase);
    if (compute_gradients(t, batch, &loss_sum, err) != 0) return -1;
    if (record_gradients(&t->record, t->strategy->model, t->progress.step, err) != 0) return -1;
    phase = profile_enter(&t->profile, PHASE_OPTIMIZER);
    optimizer_step(t->optimizer, lr);
    profile_leave(&t->profile, phase);
    uint64_t ns = profile_end_step(&t->profile);

    record_step_time(&t->record, ns);
    bool last = t->progress.step + 1 == t->total_steps;
    if (t->progress.step % t->config->log_every == 0 || last)
        if (log_step(t, batch, loss_sum, lr, ns, err) != 0) return -1;
    t->progress.step++;
    t->progress.batch++;
    log_progress(&t->record.log, t->progress.step, t->total_steps, "steps",
                 (double)t->config->global_batch);
    return 0;
}

// ---- evaluation -------------------------------------------------------------------------------

// This rank's sums over its part of the test split: {losses, correct rows, rows}.
static int evaluate_part(Trainer *t, double sums[3], Error *err) {
    Strategy *strategy = t->strategy;
    Module *module = strategy->evaluation_module ? strategy->evaluation_module : strategy->module;
    bool alone = !strategy->evaluation_module; // one process evaluates everything
    Sampler *part = sampler_evaluation(t->data->test.count, EVALUATION_BATCH,
                                       alone ? 1 : strategy->devices, alone ? 0 : strategy->rank);
    Loader *loader = loader_create(&t->data->test, part, NULL, LOADER_DEPTH);
    loader_start(loader, 0, 0);
    int failed = 0;
    for (const Batch *batch; !failed && (batch = loader_next(loader));) {
        Tensor *outputs;
        tape_reset(t->tape);
        Tensor *loss = forward(t->tape, module, batch, (double)batch->count, &outputs, err);
        failed = !loss;
        if (failed) break;
        sums[0] += (double)tensor_item(loss) * (double)batch->count;
        sums[2] += (double)batch->count;
        if (batch->labels)
            sums[1] += (double)t->tape->device->kernels->count_correct(
                tensor_f32(outputs), batch->labels, batch->count, outputs->shape[1]);
    }
    loader_close(loader);
    sampler_close(part);
    return failed ? -1 : 0;
}

static int evaluate(Trainer *t, Evaluation *result, Error *err) {
    Strategy *strategy = t->strategy;
    double sums[3] = {0};
    if (strategy->sync_buffers(strategy, err) != 0) return -1;
    t->tape->recording = t->tape->training = false;
    int failed = evaluate_part(t, sums, err);
    t->tape->recording = t->tape->training = true;
    if (failed || strategy->reduce(strategy, sums, 3, err) != 0) return -1;
    CHECK((size_t)sums[2] == t->data->test.count, "evaluated %.0f samples of %zu", sums[2],
          t->data->test.count);
    result->loss = sums[0] / sums[2];
    result->accuracy = t->data->test.classes ? sums[1] / sums[2] : NAN;
    return 0;
}

// ---- checkpoints ------------------------------------------------------------------------------

static int save(Trainer *t, const char *path, Error *err) {
    return checkpoint_save(path, t->strategy->model, t->optimizer, &t->progress, err);
}

// Writes DIR/last.safetensors (or --save's file), on the main rank.
static int save_last(Trainer *t, Error *err) {
    const TrainConfig *config = t->config;
    if (!strategy_is_main(t->strategy) || (!config->save && !config->out)) return 0;
    if (config->save) return save(t, config->save, err);
    char *path = memory_format("%s/last.safetensors", config->out);
    int failed = save(t, path, err);
    free(path);
    return failed;
}

static int save_if_best(Trainer *t, const Evaluation *evaluation, Error *err) {
    double score = t->data->test.classes ? evaluation->accuracy : -evaluation->loss;
    if (!(score > t->progress.best)) return 0;
    t->progress.best = score;
    if (!strategy_is_main(t->strategy) || !t->config->out) return 0;
    char *path = memory_format("%s/best.safetensors", t->config->out);
    int failed = save(t, path, err);
    free(path);
    return failed;
}

static int resume(Trainer *t, Error *err) {
    const TrainConfig *config = t->config;
    if (checkpoint_load(config->resume, t->strategy->model, t->optimizer, &t->progress, err) != 0)
        return -1;
    if (t->progress.seed != config->seed || t->progress.global_batch != config->global_batch)
        return error_set(err, STATUS_USAGE,
                         "%s: was made with --seed %llu --global-batch %llu; with other values the "
                         "run would not continue but become another one",
                         config->resume, (unsigned long long)t->progress.seed,
                         (unsigned long long)t->progress.global_batch);
    log_say(&t->record.log, "resumed %s at step %llu", config->resume,
            (unsigned long long)t->progress.step);
    return 0;
}

// ---- the run ----------------------------------------------------------------------------------

// Steps until the epoch or the run ends.
static int train_epoch(Trainer *t, Error *err) {
    loader_start(t->loader, t->progress.epoch, t->progress.batch);
    while (t->progress.batch < t->sampler->batch_count && t->progress.step < t->total_steps) {
        if (train_step(t, err) != 0) return -1;
        bool due = t->config->save_every && t->progress.step % t->config->save_every == 0;
        if (due && save_last(t, err) != 0) return -1;
    }
    return 0;
}

static int train(Trainer *t, Evaluation *evaluation, Error *err) {
    while (t->progress.step < t->total_steps) {
        if (train_epoch(t, err) != 0) return -1;
        if (t->progress.batch == t->sampler->batch_count) { // else --steps ended the run inside it
            t->progress.epoch++;
            t->progress.batch = 0;
        }
        if (!t->config->no_eval) {
            if (evaluate(t, evaluation, err) != 0) return -1;
            record_evaluation(&t->record, t->progress.epoch, evaluation, t->data->test.classes > 0);
            if (save_if_best(t, evaluation, err) != 0) return -1;
        }
        if (save_last(t, err) != 0) return -1;
    }
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
static int gather_peaks(Strategy *strategy, Summary *summary, Error *err) {
    size_t devices = (size_t)strategy->devices;
    double *values = memory_zalloc((devices + 1) * sizeof *values);
    for (int i = 0; i < strategy->all_count; i++)
        values[strategy->rank + i] = (double)strategy->all[i]->peak_bytes;
    values[devices] = (double)strategy->moved_bytes(strategy);
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
                       .test = *evaluation,
                       .has_accuracy = t->data->test.classes > 0};
    if (gather_peaks(t->strategy, &summary, err) != 0) return -1;
    return record_summary(&t->record, &summary, err);
}

static int write_trace(Trainer *t, Error *err) {
    int rank = t->strategy->rank;
    if (!t->trace) return 0;
    char *path = rank == 0 ? memory_format("%s", t->config->trace)
                           : memory_format("%s.rank%d", t->config->trace, rank);
    int failed = trace_write(t->trace, path, err);
    free(path);
    return failed;
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

static void open_trace(Trainer *t) {
    if (!t->config->trace) return;
    char name[64];
    snprintf(name, sizeof name, "%s rank %d", t->strategy->name, t->strategy->rank);
    t->trace = trace_open(t->strategy->rank, name);
    t->profile.trace = t->trace;
    t->profile.track = trace_track(t->trace, "main", TRACE_SPANS);
    t->strategy->set_trace(t->strategy, t->trace);
}

static void open_optimizer(Trainer *t) {
    const TrainConfig *config = t->config;
    bool adamw = strcmp(config->optimizer, "adamw") == 0;
    OptimizerConfig optimizer = {.kind = adamw ? OPTIMIZER_ADAMW : OPTIMIZER_SGD,
                                 .momentum = config->momentum,
                                 .nesterov = config->nesterov,
                                 .weight_decay = config->weight_decay,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8};
    t->optimizer = optimizer_create(t->strategy->model, &optimizer);
    t->schedule = (Schedule){.name = config->schedule,
                             .lr = config->lr,
                             .warmup_steps = config->warmup_steps,
                             .total_steps = t->total_steps,
                             .step_every = t->total_steps / 3 + 1,
                             .gamma = 0.1,
                             .power = 0.9};
}

static int check_config(const TrainConfig *config, Error *err) {
    if (strspn(config->dump_step, "0123456789,") != strlen(config->dump_step))
        return error_set(err, STATUS_USAGE, "--dump-step %s: expected steps like 0,1,10",
                         config->dump_step);
    bool several = strchr(config->dump_step, ',') != NULL;
    if (config->dump_grads && several && !strstr(config->dump_grads, "{step}"))
        return error_set(err, STATUS_USAGE,
                         "--dump-grads %s: for several steps the name needs "
                         "{step}",
                         config->dump_grads);
    return 0;
}

static int trainer_open(Trainer *t, const Options *options, Error *err) {
    const TrainConfig *config = t->config;
    Strategy *strategy = t->strategy;
    if (check_config(config, err) != 0) return -1;
    t->sampler = strategy->sampler(strategy, t->data->train.count, config->global_batch,
                                   !config->no_shuffle, config->seed, err);
    if (!t->sampler) return -1;
    t->total_steps = config->steps ? config->steps : config->epochs * t->sampler->batch_count;
    t->augment = (Augment){.crop_pad = 4, .flip = true, .seed = config->seed};
    t->loader = loader_create(&t->data->train, t->sampler, config->augment ? &t->augment : NULL,
                              LOADER_DEPTH);
    t->tape = tape_create(strategy->device, &t->profile);
    t->progress =
        (Progress){.seed = config->seed, .global_batch = config->global_batch, .best = -INFINITY};
    open_optimizer(t);
    open_trace(t);
    if (record_open(&t->record, config, options, strategy, t->total_steps, err) != 0) return -1;
    announce(t);
    return config->resume ? resume(t, err) : 0;
}

static void trainer_close(Trainer *t) {
    record_close(&t->record);
    loader_close(t->loader);
    sampler_close(t->sampler);
    optimizer_close(t->optimizer);
    tape_close(t->tape);
    trace_close(t->trace);
}

int trainer_run(const TrainConfig *config, const Options *options, const DataSource *data,
                Strategy *strategy, Error *err) {
    Trainer trainer = {.config = config, .data = data, .strategy = strategy};
    Evaluation evaluation = {NAN, NAN};
    int failed = trainer_open(&trainer, options, err);
    if (!failed) failed = train(&trainer, &evaluation, err);
    if (!failed) failed = summarise(&trainer, &evaluation, err);
    if (!failed) failed = write_trace(&trainer, err);
    if (!failed) failed = strategy->barrier(strategy, err);
    trainer_close(&trainer);
    return failed;
}
