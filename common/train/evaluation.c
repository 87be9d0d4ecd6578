/* evaluation.c: a loop over this process's share of the test split, then sums over processes. */
#include "common/nn/tape.h"
#include "common/train/run.h"

enum { EVALUATION_BATCH = 256, LOADER_DEPTH = 2 };

// Evaluates this process's share of the test split.
static int evaluate_part(Run *run, Metrics *metrics, Error *err) {
    Strategy *strategy = run->strategy;
    Tape *tape = run->step->tape;
    const Dataset *set = &run->data->test;
    // Batches of text are at most as large as those of training, which fit into memory.
    size_t share = run->config->global_batch / (size_t)run->job->devices, size = EVALUATION_BATCH;
    if (set->tokens && share < size) size = share == 0 ? 1 : share;
    Sampler *part =
        sampler_evaluation(set->count, size, strategy_processes(strategy), strategy->sampler->rank);
    Loader *loader = loader_create(set, part, NULL, LOADER_DEPTH, strategy->device);
    BatchInput *input = batch_input_create(strategy->device, set, loader_capacity(loader));
    const Loss loss = loss_of_evaluation(run->config, set);
    loader_start(loader, 0, 0);
    int failed = 0;
    for (const Batch *batch; !failed && (batch = loader_next(loader));) {
        BatchLoss result;
        run_enter(run, "evaluate");
        batch_input_send(input, batch);
        failed = batch_forward(&result, tape, strategy->evaluation_module, input, err) != 0 ||
                 loss_forward(&loss, &result, tape, input, NULL, err) != 0;
        if (!failed) metrics_add(metrics, tape, batch, &result);
        tape_reset(tape);
        batch_input_used(input);
        batch_input_wait(input);
    }
    batch_input_close(input);
    loader_close(loader);
    sampler_close(part);
    return failed;
}

int evaluate_run(Run *run, Evaluation *result, Error *err) {
    Strategy *strategy = run->strategy;
    run_enter(run, "evaluate");
    if (strategy->sync_buffers(strategy, err) != 0) return -1;
    Metrics metrics = metrics_open(&run->data->test);
    Tape *tape = run->step->tape;
    tape->recording = tape->training = false;
    int failed = evaluate_part(run, &metrics, err);
    tape->recording = tape->training = true;
    if (!failed) failed = metrics_reduce(&metrics, strategy, err);
    if (!failed) *result = metrics_result(&metrics);
    metrics_close(&metrics);
    return failed;
}
