/* run.c: see run.h. */
#include "common/train/run.h"

#include <math.h>

#include "common/device/link.h"
#include "common/train/bits.h"
#include "common/train/checks.h"
#include "common/train/saving.h"

enum { LOADER_DEPTH = 2, TRACE_SPANS = 1 << 16 };

void run_enter(const Run *run, const char *phase) {
    const JobWatch *watch = run->strategy->watch;
    watch->enter(watch, phase, run->progress.step);
}

static void synchronize(void *strategy) {
    const Strategy *s = strategy;
    for (int i = 0; i < s->all_count; i++) device_synchronize(s->all[i]);
}

// Where a device works on its own, a phase is only the time that it takes to ask for the work. With
// --profile the device is waited for at the end of each phase: that makes a run slower, and its
// phases true.
static void open_profile(Run *run) {
    Strategy *strategy = run->strategy;
    if (run->config->profile && !device_is_synchronous(strategy->device)) {
        run->profile.wait_for_device = synchronize;
        run->profile.wait_context = strategy;
    }
    if (!run->config->trace) return;
    char name[64];
    snprintf(name, sizeof name, "%s rank %d%s", strategy->name, strategy->rank,
             run->config->link ? ", emulated link" : "");
    run->trace = trace_open(strategy->rank, name);
    run->profile.trace = run->trace;
    run->profile.track = trace_track(run->trace, "main", TRACE_SPANS);
    strategy->set_trace(strategy, run->trace);
}

static void open_optimizer(Run *run) {
    const TrainConfig *config = run->config;
    OptimizerConfig optimizer = train_optimizer(config);
    optimizer.sharding = run->strategy->sharding;
    if (optimizer.sharding)
        optimizer.sharding->whole_gradients =
            config->clip_grad_norm > 0 || config->amp == PRECISION_F16 || config->dump_grads;
    run->optimizer = optimizer_create(run->strategy->model, &optimizer);
    run->schedule =
        (Schedule){.kind = config->schedule,
                   .lr = config->lr,
                   .warmup_steps = config->warmup_steps,
                   .warmup_start = config->warmup_start,
                   .total_steps = run->total_steps,
                   .step_every = config->step_every ? config->step_every : run->total_steps / 3 + 1,
                   .gamma = config->gamma,
                   .power = config->power};
}

static void open_loader(Run *run) {
    const TrainConfig *config = run->config;
    run->augment = (Augment){.crop_pad = 4, .flip = true, .seed = config->seed};
    run->loader =
        loader_create(&run->data->train, run->strategy->sampler,
                      config->augment ? &run->augment : NULL, LOADER_DEPTH, run->strategy->device);
}

static void open_step(Run *run) {
    const TrainConfig *config = run->config;
    run->step = step_open(config, run->strategy, run->optimizer, &run->profile, &run->data->train,
                          loader_capacity(run->loader));
    if (config->cuda_graph) run->graph = step_graph_open(run->step);
    run->rows = rows_open(run->step, &run->record, run->total_steps);
}

static Progress first_progress(const Run *run) {
    Progress progress = {.seed = run->config->seed,
                         .global_batch = run->config->global_batch,
                         .samples = run->data->train.count,
                         .shuffled = !run->config->no_shuffle,
                         .devices = (uint64_t)run->strategy->devices,
                         .best = -INFINITY};
    const size_t room = sizeof progress.notes[0];
    snprintf(progress.notes[NOTE_LR], room, "%g", run->config->lr);
    snprintf(progress.notes[NOTE_SCHEDULE], room, "%s", schedule_name(run->config->schedule));
    snprintf(progress.notes[NOTE_MOMENTUM], room, "%g", run->config->momentum);
    snprintf(progress.notes[NOTE_WEIGHT_DECAY], room, "%g", run->config->weight_decay);
    snprintf(progress.notes[NOTE_STEPS], room, "%zu", run->total_steps);
    snprintf(progress.notes[NOTE_SAMPLER_SEED], room, "%llu",
             (unsigned long long)train_sampler_seed(run->config));
    if (run->data->train.tokens)
        snprintf(progress.notes[NOTE_TEXT], room, "%016llx",
                 (unsigned long long)checks_hash_text(run->data));
    return progress;
}

static int check(Run *run, const Options *options, Error *err) {
    const TrainConfig *config = run->config;
    if (checks_config(config, options, run->data, run->total_steps, err) != 0 ||
        checks_device(config, run->data, run->strategy, err) != 0 ||
        checks_shares(run->strategy, err) != 0)
        return -1;
    return strategy_is_main(run->strategy) ? checks_outputs(config, err) : 0;
}

static void announce(Run *run) {
    const Strategy *s = run->strategy;
    const TrainConfig *config = run->config;
    char blas[160];
    s->device->kernels->describe(blas, sizeof blas);
    size_t devices = (size_t)s->devices;
    log_say(&run->record.log, "%s: %s on %s, %zu parameters; %d device%s (%s); %s", s->name,
            config->model, run->data->name, module_count(s->model, MODULE_PARAMETERS), s->devices,
            s->devices == 1 ? "" : "s", s->device->kernels->name, blas);
    log_say(&run->record.log, "global batch %zu, %zu per device; %zu batches per epoch, %zu steps",
            config->global_batch, (config->global_batch + devices - 1) / devices,
            s->sampler->batch_count, run->total_steps);
    char link[LINK_TEXT_MAX];
    if (config->link)
        log_say(&run->record.log, "times are over %s between the devices",
                link_describe(link_speed(s->device->link), link));
}

int run_open(Run *run, const Options *options, Error *err) {
    const TrainConfig *config = run->config;
    Strategy *strategy = run->strategy;
    if (checks_same_options(strategy, options, err) != 0 ||
        checks_same_data(strategy, config, run->data, err) != 0)
        return -1;
    if (config->drop_last && sampler_drop_incomplete(strategy->sampler, err) != 0) return -1;
    run->total_steps = train_steps(config, strategy->sampler);
    if (check(run, options, err) != 0) return -1;
    run->progress = first_progress(run);
    open_loader(run);
    open_optimizer(run);
    open_profile(run);
    open_step(run);
    if (record_open(&run->record, config, options, strategy, run->total_steps, err) != 0) return -1;
    announce(run);
    bits_announce(run);
    if (saving_agree(run, err) != 0) return -1;
    trace_mark(run->trace); // all ranks have just waited for each other
    if (config->resume && resume_run(run, err) != 0) return -1;
    return record_start(&run->record, run->progress.step, err);
}

void run_close(Run *run) {
    Error lost = {0};
    if (run->step) rows_finish(&run->rows, &lost); // a failed run's last row, if it came through
    rows_close(&run->rows);
    record_close(&run->record);
    step_graph_close(run->graph);
    step_close(run->step);
    loader_close(run->loader);
    optimizer_close(run->optimizer);
    trace_close(run->trace);
}
