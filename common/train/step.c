/* step.c: the parts of a step; its five lines are in trainer.c (train_step). */
#include "common/train/step.h"

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/nn/tape.h"

int step_loss(Step *step, Tape *tape, BatchLoss *batch, Error *err) {
    const Dataset *set = step->input->set;
    batch->hits = step->hits + step->input->part * hits_size(set);
    if (loss_forward(&step->loss, batch, tape, step->input, step->strategy, err) != 0) return -1;
    Phase phase = profile_enter(tape->profile, PHASE_LOSS);
    hits_count(tape, set, batch);
    profile_leave(tape->profile, phase);
    const bool is_scaled = step->config->amp == PRECISION_F16;
    batch->root = is_scaled ? grad_scaler_scale(&step->scaler, tape, batch->loss) : batch->loss;
    return 0;
}

int step_optimize(Step *step, Tape *tape, double lr, Error *err) {
    Phase phase = profile_enter(tape->profile, PHASE_OPTIMIZER);
    int failed = step_scaler_optimize(step, lr, err);
    profile_leave(tape->profile, phase);
    return failed;
}

void step_done(Step *step, const float *loss) {
    size_t slot = step->steps++ % LATE_LOSSES;
    readback_start(step->losses[slot], loss);
    readback_start(step->late_hits[slot], step->hits);
    batch_input_used(step->input);
}

double step_read_loss(const Step *step, int back, double *hits) {
    CHECK(back < LATE_LOSSES && step->steps > (size_t)back, "there is no loss of %d steps ago",
          back);
    size_t slot = (step->steps - 1 - (size_t)back) % LATE_LOSSES;
    const float *loss = readback_wait(step->losses[slot]);
    if (!hits) return (double)*loss;
    const int64_t *parts = readback_wait(step->late_hits[slot]);
    size_t size = hits_size(step->input->set);
    for (size_t i = 0; i < size; i++) hits[i] = 0;
    for (size_t i = 0; i < step->config->accumulate_steps * size; i++)
        hits[i % size] += (double)parts[i];
    return (double)*loss;
}

void step_send_batch(Step *step, const Batch *batch) {
    Phase phase = profile_enter(step->tape->profile, PHASE_DATA);
    batch_input_send(step->input, batch);
    profile_leave(step->tape->profile, phase);
}

static size_t hits_bytes(const Step *step) {
    return step->config->accumulate_steps * hits_size(step->input->set) * sizeof *step->hits;
}

Step *step_open(const TrainConfig *config, Strategy *strategy, Optimizer *optimizer,
                Profile *profile, const Dataset *set, size_t capacity) {
    Step *step = memory_zalloc(sizeof *step);
    Device *device = strategy->device;
    *step = (Step){.config = config,
                   .strategy = strategy,
                   .optimizer = optimizer,
                   .tape = tape_create(device, profile),
                   .input = batch_input_create(device, set, capacity),
                   .loss = loss_of_training(config, set),
                   .scale = 1,
                   .total = device_alloc(device, sizeof *step->total)};
    step->tape->precision = config->amp;
    if (config->clip_grad_norm > 0)
        step->clip = grad_clip_open(&optimizer->parameters, optimizer->config.sharding);
    const GradScalerState state = grad_scaler_default();
    int failed = grad_scaler_load(&step->scaler, &state, NULL);
    CHECK(!failed, "a GradScaler does not take its own defaults");
    step->hits = device_alloc(device, hits_bytes(step));
    for (int i = 0; i < LATE_LOSSES; i++) {
        step->losses[i] = readback_create(device, sizeof(float));
        step->late_hits[i] = readback_create(device, hits_bytes(step));
    }
    return step;
}

void step_close(Step *step) {
    if (!step) return;
    for (int i = 0; i < LATE_LOSSES; i++) {
        readback_close(step->losses[i]);
        readback_close(step->late_hits[i]);
    }
    device_free(step->strategy->device, step->hits, hits_bytes(step));
    device_free(step->strategy->device, step->total, sizeof *step->total);
    grad_clip_close(step->clip);
    batch_input_close(step->input);
    tape_close(step->tape);
    free(step);
}
