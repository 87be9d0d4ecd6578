/* evaluation.c: a loop over this process's share of the test split, then sums over processes. */
#include "common/nn/tape.h"
#include "common/train/run.h"

enum { EVALUATION_BATCH = 256, LOADER_DEPTH = 2 };

static int evaluate_batch(Run *run, BatchInput *input, const Loss *loss, const Batch *batch,
                          Metrics *metrics, Error *err) {
    Tape *tape = run->step->tape;
    BatchLoss result;
    run_enter(run, "evaluate");
    batch_input_send(input, batch);
    if (batch_forward(&result, tape, run->strategy->evaluation_module, input, err) != 0 ||
        loss_forward(loss, &result, tape, input, NULL, err) != 0)
        return -1;
    metrics_add(metrics, tape, batch, &result);
    tape_reset(tape);
    batch_input_used(input);
    batch_input_wait(input);
    return 0;
}

// The number of batches of the first process, which has the most.
static size_t most_batches(const Strategy *strategy, size_t samples, size_t size) {
    size_t begin, end;
    chunk_bounds(samples, (size_t)strategy_processes(strategy), 0, &begin, &end);
    return (end + size - 1) / size;
}

// Evaluates this process's share of the test split.
static int evaluate_part(Run *run, Metrics *metrics, Error *err) {
    Strategy *strategy = run->strategy;
    const Dataset *set = &run->data->test;
    // Batches of text are at most as large as training's, which fit into memory.
    size_t share = run->config->global_batch / (size_t)run->job->devices, size = EVALUATION_BATCH;
    if (set->tokens && share < size) size = share == 0 ? 1 : share;
    Sampler *part =
        sampler_evaluation(set->count, size, strategy_processes(strategy), strategy->sampler->rank);
    Loader *loader = loader_create(set, part, NULL, LOADER_DEPTH, strategy->device);
    BatchInput *input = batch_input_create(strategy->device, set, loader_capacity(loader));
    const Loss loss = loss_of_evaluation(run->config, set);
    loader_start(loader, 0, 0);
    int failed = 0;
    for (const Batch *batch; !failed && (batch = loader_next(loader));)
        failed = evaluate_batch(run, input, &loss, batch, metrics, err);
    const size_t all = strategy->collective_forward ? most_batches(strategy, set->count, size) : 0;
    for (size_t i = part->batch_count; !failed && i < all; i++)
        failed = evaluate_batch(run, input, &loss, &(Batch){.set = set}, metrics, err);
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
