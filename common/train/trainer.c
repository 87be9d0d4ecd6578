/* trainer.c: the training loop: a run is epochs, an epoch is steps, and after each epoch the model
 * is evaluated and saved. It knows batches, a module, a loss and an optimizer, and nothing of
 * parallelism: whatever spreads the work does so inside strategy->module and the strategy's calls.
 */
#include "common/train/trainer.h"

#include <math.h>

#include "common/train/dry_run.h"
#include "common/train/evaluation.h"
#include "common/train/generation.h"
#include "common/train/run_end.h"
#include "common/train/saving.h"
#include "common/train/step_accumulated.h"

// ---- one step -----------------------------------------------------------------------------------

// Takes the next batch from the loader's thread and sends it to the device.
static const Batch *fetch_batch(Run *run) {
    Phase phase = profile_enter(&run->profile, PHASE_DATA);
    step_wait_batch(run->step);
    const Batch *batch = loader_next(run->loader);
    CHECK(batch, "the epoch has no batch %llu", (unsigned long long)run->progress.batch);
    profile_leave(&run->profile, phase);
    return batch;
}

// Takes one of the other kinds of steps: in parts, or replayed.
static int run_other_step(Run *run, double lr, Error *err) {
    if (!run->graph) return step_run_accumulated(run->step, run->step->tape, lr, err);
    // The collectives of a replayed step may not overtake one that is still on its way.
    return rows_finish(&run->rows, err) != 0 ? -1 : step_graph_run(run->graph, lr, err);
}

// Gradients are written when they are computed, and count: where the device works on its own, the
// processes' sums may still fail.
static int dump_gradients(Run *run, uint64_t step, Error *err) {
    const Strategy *strategy = run->strategy;
    if (!record_wants_gradients(&run->record, step)) return 0;
    device_synchronize(strategy->device);
    if (strategy->watch->check(strategy->watch, err) != 0) return -1;
    return record_gradients(&run->record, strategy->model, step, err);
}

static int train_batch(Run *run, Error *err) {
    Progress *progress = &run->progress;
    StepRecord now = {.step = progress->step, .epoch = progress->epoch};
    now.lr = schedule_lr(&run->schedule, now.step);
    run_enter(run, "train");
    profile_begin_step(&run->profile);
    const Batch *batch = fetch_batch(run);
    step_send_batch(run->step, batch);
    bool plain = !run->graph && run->config->accumulate_steps == 1;
    int failed = plain ? step_run(run->step, run->step->tape, now.lr, err)
                       : run_other_step(run, now.lr, err);
    if (failed) return -1;
    rows_wait(&run->rows);
    now.ns = profile_end_step(&run->profile);
    now.scale = run->step->scaler.scale;
    now.samples = batch->global_count;
    record_step_time(&run->record, now.ns);
    if (dump_gradients(run, now.step, err) != 0) return -1;
    if (rows_add(&run->rows, &now, &run->profile, err) != 0) return -1;
    progress->step++;
    progress->batch++;
    log_progress(&run->record.log, progress->step, run->total_steps, "steps",
                 (double)run->config->global_batch);
    return 0;
}

// ---- the run ------------------------------------------------------------------------------------

// Takes steps until the epoch or the run ends.
static int train_epoch(Run *run, Error *err) {
    Progress *progress = &run->progress;
    loader_start(run->loader, progress->epoch, progress->batch);
    while (progress->batch < run->strategy->sampler->batch_count &&
           progress->step < run->total_steps) {
        if (train_batch(run, err) != 0) return -1;
        bool due = run->config->save_every && progress->step % run->config->save_every == 0;
        // The rows of all steps that a checkpoint holds are written before it is.
        if (due && (rows_settle(&run->rows, err) != 0 || save_last(run, err) != 0)) return -1;
    }
    if (rows_settle(&run->rows, err) != 0) return -1;
    if (progress->batch == run->strategy->sampler->batch_count) { // else --steps ended the run
        progress->epoch++;
        progress->batch = 0;
    }
    return 0;
}

// The epoch that the last step belonged to, from 0.
static uint64_t last_epoch(const Progress *progress) {
    return progress->batch == 0 && progress->epoch > 0 ? progress->epoch - 1 : progress->epoch;
}

static int evaluate_epoch(Run *run, Evaluation *evaluation, Error *err) {
    if (run->config->no_eval) return 0;
    uint64_t epoch = last_epoch(&run->progress);
    if (evaluate_run(run, evaluation, err) != 0) return -1;
    record_evaluation(&run->record, epoch, evaluation);
    if (save_if_best(run, evaluation, err) != 0) return -1;
    return evaluation_write_images(run, epoch, err);
}

// --evaluate: the weights came with the model (setup.c).
static int evaluate_only(Run *run, Evaluation *evaluation, Error *err) {
    if (evaluate_run(run, evaluation, err) != 0) return -1;
    record_evaluation_of(&run->record, run->config->evaluate, evaluation);
    return 0;
}

static int end_epoch(Run *run, Evaluation *evaluation, Error *err) {
    if (evaluate_epoch(run, evaluation, err) != 0 || save_last(run, err) != 0) return -1;
    return save_epoch(run, err);
}

int trainer_run(const TrainConfig *config, const Options *options, const DataSource *data,
                Strategy *strategy, Error *err) {
    Run run = {.config = config, .data = data, .strategy = strategy};
    Evaluation evaluation = {NAN, SCORE_NONE};
    int failed = run_open(&run, options, err);
    if (!failed && config->evaluate) failed = evaluate_only(&run, &evaluation, err);
    if (!failed && config->dry_run) failed = dry_run_print(&run, err);
    bool more = !failed && !config->evaluate && !config->dry_run;
    while (more) { // once at least: a run resumed at its last step may not be evaluated yet
        failed = train_epoch(&run, err) != 0 || end_epoch(&run, &evaluation, err) != 0;
        more = !failed && run.progress.step < run.total_steps;
    }
    if (!failed) failed = generation_print(&run, err);
    if (!failed && !config->dry_run) failed = run_end(&run, &evaluation, err);
    if (failed) strategy->watch->give_up(strategy->watch, err);
    run_close(&run);
    return failed ? -1 : 0;
}
