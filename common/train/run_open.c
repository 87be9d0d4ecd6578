/* run_open.c: opens and closes a run of the trainer. */
#include <math.h>
#include <stdlib.h>

#include "common/base/format.h"
#include "common/base/trace.h"
#include "common/device/link.h"
#include "common/train/checks.h"
#include "common/train/run.h"

enum { LOADER_DEPTH = 2, TRACE_SPANS = 1 << 16 };

static void synchronize(void *context) {
    const Job *job = context;
    for (int i = 0; i < job->all_count; i++) device_synchronize(job->all[i]);
}

// Opens profile and trace. On an asynchronous device a phase's time is that of enqueuing its work,
// so --profile synchronizes the devices at the end of each phase: slower, with the phases' real
// times.
static void open_profile(Run *run) {
    Job *job = run->job;
    if (run->config->profile) {
        run->profile.wait_for_device = synchronize;
        run->profile.wait_context = job;
    }
    if (!run->config->trace) return;
    char name[64];
    snprintf(name, sizeof name, "%s rank %d%s", job->name, job->rank,
             run->config->link ? ", emulated link" : "");
    run->trace = trace_open(job->rank, name);
    run->profile.trace = run->trace;
    run->profile.track = trace_track(run->trace, "main", TRACE_SPANS);
    job->set_trace(job, run->trace);
}

static void open_step(Run *run) {
    const TrainConfig *config = run->config;
    const Dataset *set = &run->data->train;
    OptimizerConfig optimizer = train_optimizer(config);
    optimizer.sharding = run->job->sharding;
    if (optimizer.sharding) {
        optimizer.sharding->whole_gradients = config->amp == PRECISION_F16 || config->dump_grads;
        optimizer.sharding->own_gradients = config->clip_grad_norm > 0;
    }
    // A user's own wrapper may write parameters without tensor_changed.
    if (!options_given(run->options, "wrapper")) optimizer.half_copies = config->amp;
    run->optimizer = optimizer_create(run->strategy->model, &optimizer);
    run->schedule = config->schedule;
    run->schedule.total_steps = run->total_steps;
    run->augment = (Augment){.crop_pad = 4, .flip = true, .seed = config->seed};
    run->loader = loader_create(set, run->strategy->sampler, config->augment ? &run->augment : NULL,
                                LOADER_DEPTH, run->strategy->device);
    run->step = step_open(config, run->strategy, run->optimizer, &run->profile, set,
                          loader_capacity(run->loader));
    if (config->cuda_graph) run->graph = step_graph_open(run->step, run->job);
    run->rows = pending_rows_open(run->step, &run->record, run->total_steps);
}

static Progress first_progress(const Run *run) {
    const TrainConfig *config = run->config;
    Progress progress = {.seed = config->seed,
                         .global_batch = config->global_batch,
                         .samples = run->data->train.count,
                         .shuffled = !config->no_shuffle,
                         .devices = (uint64_t)run->job->devices,
                         .best = -INFINITY};
    char(*notes)[32] = progress.notes;
    const size_t room = sizeof *notes;
    snprintf(notes[NOTE_LR], room, "%g", config->schedule.lr);
    snprintf(notes[NOTE_SCHEDULE], room, "%s", schedule_name(config->schedule.kind));
    snprintf(notes[NOTE_MOMENTUM], room, "%g", config->momentum);
    snprintf(notes[NOTE_WEIGHT_DECAY], room, "%g", config->weight_decay);
    if (config->optimizer != OPTIMIZER_SGD)
        snprintf(notes[NOTE_BETAS], room, "%g,%g", config->betas[0], config->betas[1]);
    snprintf(notes[NOTE_STEPS], room, "%zu", run->total_steps);
    snprintf(notes[NOTE_SAMPLER_SEED], room, "%ju", (uintmax_t)train_sampler_seed(config));
    if (run->data->train.tokens)
        snprintf(notes[NOTE_TEXT], room, "%016jx", (uintmax_t)checks_hash_text(run->data));
    return progress;
}

// Each starter's variables for a process's rank and the number of processes.
static const struct {
    const char *rank, *size, *also; // `also` must be set, too; NULL: nothing
} STARTERS[] = {
    {"RANK", "WORLD_SIZE", NULL}, // ddprun, torchrun
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
    {"PMI_RANK", "PMI_SIZE", NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"}, // srun, and not its batch script
};

// Notes in the first of several processes of a single-process program, as mpirun, srun or ddprun
// start them, that each trains independently.
static void note_copies(const Job *job, RunLog *log) {
    if (job->devices > job->all_count) return; // several processes train one model
    for (size_t i = 0; i < sizeof STARTERS / sizeof *STARTERS; i++) {
        const char *rank = getenv(STARTERS[i].rank), *size = getenv(STARTERS[i].size);
        if (!rank || !size || (STARTERS[i].also && !getenv(STARTERS[i].also))) continue;
        if (atoi(rank) == 0 && atoi(size) > 1)
            log_say(log,
                    "note: %d processes were started, and each of them trains the whole model on "
                    "its own -- for one training by all of them use train_ddp",
                    atoi(size));
        return;
    }
}

static void announce(Run *run) {
    const Strategy *s = run->strategy;
    const TrainConfig *config = run->config;
    char blas[160];
    s->device->kernels->describe(blas, sizeof blas);
    const Job *job = run->job;
    size_t devices = (size_t)job->devices;
    log_say(&run->record.log, "%s: %s on %s, %zu parameters; %d device%s (%s); %s", job->name,
            config->model, run->data->name, module_count(s->model, MODULE_PARAMETERS), job->devices,
            format_s(devices), s->device->kernels->name, blas);
    log_say(&run->record.log, "global batch %zu, %zu per device; %zu batch%s per epoch, %zu step%s",
            config->global_batch, (config->global_batch + devices - 1) / devices,
            s->sampler->batch_count, s->sampler->batch_count == 1 ? "" : "es", run->total_steps,
            format_s(run->total_steps));
    char link[LINK_TEXT_MAX];
    if (config->link)
        log_say(&run->record.log, "times are over %s between the devices",
                link_describe(link_speed(s->device->link), link));
    note_copies(job, &run->record.log);
    outputs_announce(&run->outputs, config, &run->record.log);
}

int run_open(Run *run, Error *err) {
    const TrainConfig *config = run->config;
    Strategy *strategy = run->strategy;
    if (checks_same_data(run->job, config, run->data, err) != 0) return -1;
    if (config->drop_last && sampler_drop_incomplete(strategy->sampler, err) != 0) return -1;
    run->total_steps = train_steps(config, strategy->sampler);
    if (checks_config(config, run->options, run->data, run->total_steps, err) != 0) return -1;
    if (checks_device(config, run->data, run->job, err) != 0) return -1;
    if (checks_shares(strategy, err) != 0) return -1;
    if (strategy_is_main(strategy) && checks_outputs(config, err) != 0) return -1;
    if (strategy_is_main(strategy) && outputs_claim(&run->outputs, config, err) != 0) return -1;
    run->progress = first_progress(run);
    open_profile(run);
    open_step(run);
    run->record = record_open(config, run->job, run->total_steps);
    if (run->record.main && config->out && out_json_config(run, err) != 0) return -1;
    announce(run);
    bits_announce(run);
    if (saving_agree(run, err) != 0) return -1;
    trace_mark(run->trace); // all ranks have just synchronized
    if (config->resume && resume_run(run, err) != 0) return -1;
    return record_start(&run->record, run->progress.step, err);
}

void run_close(Run *run) {
    Error lost = {0};
    if (run->step)
        pending_rows_finish(&run->rows, &lost); // a failed run's last row, if its sum completed
    pending_rows_close(&run->rows);
    record_close(&run->record);
    step_graph_close(run->graph);
    step_close(run->step);
    loader_close(run->loader);
    optimizer_close(run->optimizer);
    trace_close(run->trace);
    outputs_release(&run->outputs);
}
