/* step.c: the parts of a step; its five lines are in trainer.c (train_step). */
#include "common/train/step.h"

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/nn/tape.h"

int step_loss(Step *step, Tape *tape, BatchLoss *batch, Error *err) {
    if (loss_forward(&step->loss, batch, tape, step->input, step->strategy, err) != 0) return -1;
    late_losses_count(&step->losses, tape, step->input, batch);
    batch->root = step_scaler_root(&step->scaler, tape, batch->loss);
    return 0;
}

int step_optimize(Step *step, Tape *tape, double lr, Error *err) {
    Phase phase = profile_enter(tape->profile, PHASE_OPTIMIZER);
    int failed = step_scaler_optimize(&step->scaler, step->optimizer, lr, err);
    profile_leave(tape->profile, phase);
    return failed;
}

void step_done(Step *step, const float *loss) {
    late_losses_add(&step->losses, loss);
    batch_input_used(step->input);
}

void step_send_batch(Step *step, const Batch *batch) {
    Phase phase = profile_enter(step->tape->profile, PHASE_DATA);
    batch_input_send(step->input, batch);
    profile_leave(step->tape->profile, phase);
}

void step_wait_batch(Step *step) {
    batch_input_wait(step->input);
}

Step *step_open(const TrainConfig *config, Strategy *strategy, Optimizer *optimizer,
                Profile *profile, const Dataset *set, size_t capacity) {
    Step *step = memory_zalloc(sizeof *step);
    *step = (Step){.config = config,
                   .strategy = strategy,
                   .optimizer = optimizer,
                   .tape = tape_create(strategy->device, profile),
                   .input = batch_input_create(strategy->device, set, capacity),
                   .loss = loss_of_training(config, set),
                   .scaler = step_scaler_open(config, optimizer),
                   .losses = late_losses_open(strategy->device, set, config->accumulate_steps)};
    step->tape->precision = step->scaler.precision;
    return step;
}

void step_close(Step *step) {
    if (!step) return;
    late_losses_close(&step->losses, step->strategy->device);
    step_scaler_close(&step->scaler);
    batch_input_close(step->input);
    tape_close(step->tape);
    free(step);
}
