/* step.c: the five lines of a step, then what they are made of. */
#include "common/train/step.h"

#include "common/base/memory.h"
#include "common/nn/tape.h"

int step_run(Step *step, Tape *tape, double lr, Error *err) {
    Strategy *strategy = step->strategy;
    BatchLoss loss;
    module_zero_grad(strategy->model);
    if (batch_forward(&loss, tape, strategy->module, step->input, err) != 0) return -1; // forward
    if (step_loss(step, tape, &loss, err) != 0) return -1;                              // loss
    if (tape_backward(tape, loss.root, err) != 0) return -1;                            // backward
    if (strategy->finish_backward(strategy, tape, err) != 0) return -1;                 // finish
    if (step_optimize(step, tape, lr, err) != 0) return -1;                             // optimizer
    step_done(step, tensor_f32(loss.loss));
    tape_reset(tape);
    return 0;
}

int step_loss(Step *step, Tape *tape, BatchLoss *loss, Error *err) {
    const LossRule rule = loss_rule_mining(step->config, step->input);
    if (batch_mean_loss(loss, tape, step->input, &rule, step->strategy, err) != 0) return -1;
    late_losses_count(&step->losses, tape, step->input, loss);
    loss->root = step_scaler_root(&step->scaler, tape, loss->loss);
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
