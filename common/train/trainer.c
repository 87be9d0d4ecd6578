/* trainer.c: the training loop, innermost first: the five lines of a step, a batch, an epoch, a
 * run. After each epoch the model is evaluated and saved.
 *
 * The loop uses batches, a module, a loss and an optimizer. Parallelism is in strategy->module and
 * the Strategy's functions.
 */
#include "common/train/trainer.h"

#include <math.h>

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/nn/tape.h"
#include "common/train/images.h"
#include "common/train/run.h"

// ---- one step -----------------------------------------------------------------------------------

int train_step(Step *step, Tape *tape, double lr, Error *err) {
    Strategy *strategy = step->strategy;
    BatchLoss batch;
    module_zero_grad(strategy->model);
    if (batch_forward(&batch, tape, strategy->module, step->input, err) != 0) return -1; // forward
    if (step_loss(step, tape, &batch, err) != 0) return -1;                              // loss
    if (tape_backward(tape, batch.root, err) != 0) return -1;                            // backward
    if (strategy->finish_backward(strategy, tape, err) != 0) return -1;                  // finish
    if (step_optimize(step, tape, lr, err) != 0) return -1; // optimizer
    step_done(step, tensor_f32(batch.loss));
    tape_reset(tape);
    return 0;
}

// ---- one batch ----------------------------------------------------------------------------------

// Returns the next batch of the loader's thread, after waiting for a free slot on the device.
static const Batch *fetch_batch(Run *run) {
    Phase phase = profile_enter(&run->profile, PHASE_DATA);
    batch_input_wait(run->step->input);
    const Batch *batch = loader_next(run->loader);
    CHECK(batch, "the epoch has no batch %llu", (unsigned long long)run->progress.batch);
    profile_leave(&run->profile, phase);
    return batch;
}

// Runs an accumulated step, or with a graph a plain or a replayed one. 0, or -1 with err filled.
static int train_other_step(Run *run, double lr, Error *err) {
    if (!run->graph) return step_run_accumulated(run->step, run->step->tape, lr, err);
    // A replayed step's collectives must not overtake the sum in flight.
    if (pending_rows_finish(&run->rows, err) != 0) return -1;
    Tape *tape = step_graph_tape(run->graph);
    return tape ? train_step(run->step, tape, lr, err) : step_graph_replay(run->graph, lr, err);
}

// Writes the step's gradients (--dump-grads). On an asynchronous device first waits for them and
// checks that no process has failed. 0, or -1 with err filled.
static int dump_gradients(Run *run, uint64_t step, Error *err) {
    const JobWatch *watch = run->job->watch;
    SafeTensors whole = {0};
    if (!record_wants_gradients(&run->record, step)) return 0;
    device_synchronize(run->strategy->device);
    if (watch->check(watch, err) != 0) return -1;
    int failed = run->job->gather_gradients(run->job, &whole, err);
    if (!failed) failed = record_gradients(&run->record, run->strategy->model, &whole, step, err);
    safetensors_free(&whole);
    return failed;
}

static bool takes_plain_steps(const Run *run) {
    return !run->graph && run->config->accumulate_steps == 1;
}

static int train_batch(Run *run, Error *err) {
    Progress *progress = &run->progress;
    StepRecord now = {.step = progress->step, .epoch = progress->epoch};
    now.lr = schedule_lr(&run->schedule, now.step);
    run_enter(run, "train");
    profile_begin_step(&run->profile);
    const Batch *batch = fetch_batch(run);
    step_send_batch(run->step, batch);
    int failed = takes_plain_steps(run) ? train_step(run->step, run->step->tape, now.lr, err)
                                        : train_other_step(run, now.lr, err);
    if (failed) return -1;
    pending_rows_wait(&run->rows);
    now.ns = profile_end_step(&run->profile);
    now.scale = run->step->scale;
    now.samples = batch->global_count;
    record_step_time(&run->record, now.ns);
    if (dump_gradients(run, now.step, err) != 0) return -1;
    if (pending_rows_add(&run->rows, &now, &run->profile, err) != 0) return -1;
    progress->step++;
    progress->batch++;
    log_progress(&run->record.log, progress->step, run->total_steps, "steps",
                 (double)run->config->global_batch);
    return 0;
}

// ---- the run ------------------------------------------------------------------------------------

// Runs steps until the epoch or the run ends.
static int train_epoch(Run *run, Error *err) {
    Progress *progress = &run->progress;
    const uint64_t moved = run->job->moved_bytes(run->job);
    loader_start(run->loader, progress->epoch, progress->batch);
    while (progress->batch < run->strategy->sampler->batch_count &&
           progress->step < run->total_steps) {
        if (train_batch(run, err) != 0) return -1;
        bool due = run->config->save_every && progress->step % run->config->save_every == 0;
        // A checkpoint is written after the rows of all its steps.
        if (due && (pending_rows_settle(&run->rows, err) != 0 || save_last(run, err) != 0))
            return -1;
    }
    if (pending_rows_settle(&run->rows, err) != 0) return -1;
    run->moved_bytes += run->job->moved_bytes(run->job) - moved;
    if (progress->batch == run->strategy->sampler->batch_count) { // else --steps ended the run
        progress->epoch++;
        progress->batch = 0;
    }
    return 0;
}

// Evaluates and saves the model after an epoch, or at the run's end.
static int end_epoch(Run *run, Evaluation *evaluation, Error *err) {
    const Progress *progress = &run->progress;
    if (!run->config->no_eval) {
        // The epoch of the last step, from 0: after an epoch's last step, batch is 0 and epoch is
        // the next one.
        uint64_t epoch = progress->batch == 0 ? progress->epoch - 1 : progress->epoch;
        char of[32];
        snprintf(of, sizeof of, "epoch=%llu", (unsigned long long)epoch);
        if (evaluate_run(run, evaluation, err) != 0) return -1;
        record_evaluation(&run->record, of, evaluation);
        if (save_if_best(run, evaluation, err) != 0) return -1;
        size_t every = run->config->dump_images;
        const Strategy *strategy = run->strategy;
        const bool writes = strategy_is_main(strategy);
        if (every && progress->epoch % every == 0 && (writes || strategy->collective_forward) &&
            images_write(writes ? run->config->out : NULL, epoch, strategy->evaluation_module,
                         run->step->tape, &run->data->test, err) != 0)
            return -1;
    }
    if (save_last(run, err) != 0) return -1;
    return save_epoch(run, err);
}

// --dry-run: two steps on devices that only count bytes. In the second one, one-time allocations
// exist.
static int dry_run(Run *run, Error *err) {
    Step *step = run->step;
    loader_start(run->loader, 0, 0);
    for (size_t i = 0; i < 2 && i < run->strategy->sampler->batch_count; i++) {
        step_send_batch(step, fetch_batch(run));
        int failed = takes_plain_steps(run) ? train_step(step, step->tape, 0, err)
                                            : step_run_accumulated(step, step->tape, 0, err);
        if (failed) return -1;
    }
    dry_run_print(run);
    return 0;
}

int trainer_run(const TrainConfig *config, const Options *options, const DataSource *data, Job *job,
                Error *err) {
    Run run = {
        .config = config, .options = options, .data = data, .job = job, .strategy = job->strategy};
    Evaluation evaluation = {NAN, SCORE_NONE};
    int failed = run_open(&run, err);
    if (!failed && config->evaluate) { // train_create_model has loaded the weights
        char *of = memory_format("evaluated=%s", config->evaluate);
        failed = evaluate_run(&run, &evaluation, err);
        if (!failed) record_evaluation(&run.record, of, &evaluation);
        free(of);
    }
    if (!failed && config->dry_run) failed = dry_run(&run, err);
    bool more = !failed && !config->evaluate && !config->dry_run;
    while (more) { // at least once: a run resumed at its last step is evaluated
        failed = train_epoch(&run, err) != 0 || end_epoch(&run, &evaluation, err) != 0;
        more = !failed && run.progress.step < run.total_steps;
    }
    if (!failed) failed = generation_print(&run, err);
    if (!failed && !config->dry_run) failed = run_end(&run, &evaluation, err);
    if (failed) job->watch->give_up(job->watch, err);
    run_close(&run);
    return failed ? -1 : 0;
}
