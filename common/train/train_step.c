/* train_step.c: a step as usual, and a step replayed. */
#include "common/train/train_step.h"

#include <math.h>
#include <string.h>

#include "common/base/memory.h"

enum {
    RESULTS = 2,
    // Steps as usual before one is captured: buckets are rebuilt, memory is taken and libraries
    // have chosen their algorithms in the first ones.
    WARM_UP = 4,
};

typedef struct Result { // of a run, on its way to the host
    Readback *loss;     // [1] float
    double divisor;
    size_t count;
} Result;

typedef struct Captured { // a step on one place of the input
    DeviceGraph *graph;
    float *loss; // [1], device memory
    double divisor;
    size_t count;
    uint64_t moved; // bytes, in one step
} Captured;

struct TrainStep {
    const TrainConfig *config;
    Strategy *strategy;
    Optimizer *optimizer;
    // The same, unless there are graphs: the memory of what was captured, scratch included, must
    // stay as it is, so batches of other sizes and evaluation have a tape of their own.
    Tape *tape, *other_tape;
    BatchInput *input;
    GradScaler scaler; // of fp16
    double scale;      // of the last run
    uint64_t skipped;
    Result results[RESULTS];
    size_t runs;

    // With graphs: all captured steps have batches of this many samples. 0 without.
    Captured captured[BATCH_PLACES];
    size_t captured_rows, same_rows; // same_rows: steps in a row that had captured_rows
    uint64_t replayed_bytes;
};

static bool is_scaled(const TrainStep *step) {
    return step->tape->precision == PRECISION_F16;
}

TrainStep *train_step_create(const TrainConfig *config, Strategy *strategy, Optimizer *optimizer,
                             Profile *profile, const Dataset *set, size_t capacity) {
    TrainStep *step = memory_zalloc(sizeof *step);
    *step = (TrainStep){.config = config, .strategy = strategy, .optimizer = optimizer, .scale = 1};
    step->tape = step->other_tape = tape_create(strategy->device, profile);
    if (config->cuda_graph) step->other_tape = tape_create(strategy->device, profile);
    step->tape->precision = step->other_tape->precision = config->amp;
    step->input = batch_input_create(strategy->device, set, capacity);
    for (int i = 0; i < RESULTS; i++)
        step->results[i].loss = readback_create(strategy->device, sizeof(float));
    const GradScalerState state = grad_scaler_default();
    int failed = grad_scaler_load(&step->scaler, &state, NULL);
    CHECK(!failed, "a GradScaler does not take its own defaults");
    return step;
}

void train_step_close(TrainStep *step) {
    if (!step) return;
    for (int i = 0; i < RESULTS; i++) readback_close(step->results[i].loss);
    for (int i = 0; i < BATCH_PLACES; i++)
        device_graph_close(step->strategy->device, step->captured[i].graph);
    batch_input_close(step->input);
    if (step->other_tape != step->tape) tape_close(step->other_tape);
    tape_close(step->tape);
    free(step);
}

Tape *train_step_tape(TrainStep *step) {
    return step->other_tape;
}
double train_step_scale(const TrainStep *step) {
    return step->scale;
}
uint64_t train_step_skipped(const TrainStep *step) {
    return step->skipped;
}
uint64_t train_step_replayed_bytes(const TrainStep *step) {
    return step->replayed_bytes;
}

void train_step_save(const TrainStep *step, Progress *progress) {
    const GradScalerState *state = &step->scaler.state;
    snprintf(progress->amp, sizeof progress->amp, "%s", train_amp_name(step->config->amp));
    progress->scale = is_scaled(step) ? (double)state->scale : 0;
    progress->growth_tracker = is_scaled(step) ? (uint64_t)state->growth_tracker : 0;
}

int train_step_load(TrainStep *step, const Progress *progress, Error *err) {
    GradScalerState state = grad_scaler_default();
    if (!is_scaled(step) || strcmp(progress->amp, train_amp_name(step->config->amp)) != 0) return 0;
    state.scale = (float)progress->scale;
    state.growth_tracker = (int64_t)progress->growth_tracker;
    return grad_scaler_load(&step->scaler, &state, err);
}

// ---- the work of a step -------------------------------------------------------------------------

// Which pixels the loss of a batch is made of (of this rank's batch; see batch_loss.h).
static Mining pixel_mining(const TrainConfig *config, const Batch *batch) {
    size_t pixels = batch->count * dataset_label_size(batch->set);
    if (config->ohem_threshold <= 0) return (Mining){.threshold = -INFINITY};
    return (Mining){.threshold = config->ohem_threshold,
                    .least = config->ohem_min ? config->ohem_min : pixels / 16};
}

// Forward, backward, reduce: afterwards the model's gradients are those of the global batch, times
// the scale.
static int compute_gradients(TrainStep *step, Tape *tape, BatchLoss *loss, Error *err) {
    Strategy *strategy = step->strategy;
    Mining mining = pixel_mining(step->config, batch_input_batch(step->input));
    module_zero_grad(strategy->model);
    if (batch_loss(loss, tape, strategy->module, step->input, &mining, strategy, err) != 0)
        return -1;
    Tensor *root = loss->loss;
    if (is_scaled(step)) root = grad_scaler_scale(&step->scaler, tape, root);
    if (tape_backward(tape, root, err) != 0) return -1;
    return strategy->finish_backward(strategy, tape, err);
}

static int step_optimizer(TrainStep *step, double lr, Error *err) {
    if (!is_scaled(step)) {
        optimizer_step(step->optimizer, lr);
        return 0;
    }
    step->scale = (double)step->scaler.state.scale;
    if (grad_scaler_step(&step->scaler, step->optimizer, lr, err) != 0) return -1;
    step->skipped += step->scaler.found_inf;
    return grad_scaler_update(&step->scaler, err);
}

static void start_result(TrainStep *step, const float *loss, double divisor, size_t count) {
    Result *result = &step->results[step->runs++ % RESULTS];
    result->divisor = divisor;
    result->count = count;
    readback_start(result->loss, loss);
    batch_input_used(step->input);
}

static int run_as_usual(TrainStep *step, const Batch *batch, double lr, Error *err) {
    BatchLoss loss;
    Tape *tape = batch->count == step->captured_rows ? step->tape : step->other_tape;
    Profile *profile = tape->profile;
    if (compute_gradients(step, tape, &loss, err) != 0) return -1;
    Phase phase = profile_enter(profile, PHASE_OPTIMIZER);
    int failed = step_optimizer(step, lr, err);
    profile_leave(profile, phase);
    start_result(step, tensor_f32(loss.loss), loss.divisor, loss.count);
    tape_reset(tape);
    return failed;
}

// ---- graphs -------------------------------------------------------------------------------------

// Records a step on the current place. Nothing is computed.
static int capture(TrainStep *step, Captured *captured, Error *err) {
    Strategy *strategy = step->strategy;
    BatchLoss loss;
    uint64_t moved = strategy->moved_bytes(strategy);
    if (device_graph_begin(strategy->device, err) != 0) return -1;
    int failed = compute_gradients(step, step->tape, &loss, err);
    if (!failed) optimizer_apply(step->optimizer);
    captured->graph = device_graph_end(strategy->device, failed ? NULL : err);
    if (failed || !captured->graph) return -1;
    captured->loss = tensor_f32(loss.loss);
    captured->divisor = loss.divisor;
    captured->count = loss.count;
    captured->moved = strategy->moved_bytes(strategy) - moved;
    tape_reset(step->tape);
    return 0;
}

static int replay(TrainStep *step, double lr, Error *err) {
    Captured *captured = &step->captured[batch_input_place(step->input)];
    bool first = !captured->graph;
    if (first && capture(step, captured, err) != 0) return -1;
    optimizer_begin_step(step->optimizer, lr);
    device_graph_launch(step->strategy->device, captured->graph);
    if (!first) step->replayed_bytes += captured->moved;
    start_result(step, captured->loss, captured->divisor, captured->count);
    return 0;
}

// Whether this batch's step is to be replayed: its size is the usual one, and all is warm.
static bool is_captured(TrainStep *step, const Batch *batch) {
    if (!step->config->cuda_graph) return false;
    if (step->same_rows >= WARM_UP) return batch->count == step->captured_rows;
    step->same_rows = batch->count == step->captured_rows ? step->same_rows + 1 : 1;
    step->captured_rows = batch->count;
    return false;
}

// ---- a run --------------------------------------------------------------------------------------

void train_step_wait_batch(TrainStep *step) {
    batch_input_wait(step->input);
}

int train_step_run(TrainStep *step, const Batch *batch, double lr, Error *err) {
    Phase phase = profile_enter(step->tape->profile, PHASE_DATA);
    batch_input_send(step->input, batch);
    profile_leave(step->tape->profile, phase);
    return is_captured(step, batch) ? replay(step, lr, err) : run_as_usual(step, batch, lr, err);
}

StepLoss train_step_loss(const TrainStep *step, int back) {
    CHECK(back < RESULTS && step->runs > (size_t)back, "there is no loss of %d runs ago", back);
    const Result *result = &step->results[(step->runs - 1 - (size_t)back) % RESULTS];
    const float *loss = readback_wait(result->loss);
    return (StepLoss){
        .mean = (double)*loss, .sum = (double)*loss * result->divisor, .count = result->count};
}
