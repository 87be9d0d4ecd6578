/* step_scaler.c: gradient scaling and clipping around the optimizer's step. */
#include "common/train/step_scaler.h"

#include <string.h>

static bool is_scaled(const StepScaler *scaler) {
    return scaler->precision == PRECISION_F16;
}

StepScaler step_scaler_open(const TrainConfig *config, const Optimizer *optimizer) {
    StepScaler scaler = {.precision = config->amp, .scale = 1, .max_norm = config->clip_grad_norm};
    if (scaler.max_norm > 0) scaler.clip = grad_clip_open(&optimizer->parameters);
    const GradScalerState state = grad_scaler_default();
    int failed = grad_scaler_load(&scaler.scaler, &state, NULL);
    CHECK(!failed, "a GradScaler does not take its own defaults");
    return scaler;
}

void step_scaler_close(StepScaler *scaler) {
    grad_clip_close(scaler->clip);
}

Tensor *step_scaler_root(const StepScaler *scaler, Tape *tape, Tensor *loss) {
    return is_scaled(scaler) ? grad_scaler_scale(&scaler->scaler, tape, loss) : loss;
}

int step_scaler_optimize(StepScaler *scaler, Optimizer *optimizer, double lr, Error *err) {
    if (!is_scaled(scaler)) {
        if (scaler->clip) grad_clip_queue(scaler->clip, scaler->max_norm);
        optimizer_step(optimizer, lr);
        return 0;
    }
    if (scaler->clip) {
        if (grad_scaler_unscale(&scaler->scaler, optimizer, err) != 0) return -1;
        if (!scaler->scaler.found_inf) grad_clip_queue(scaler->clip, scaler->max_norm);
    }
    scaler->scale = (double)scaler->scaler.state.scale;
    if (grad_scaler_step(&scaler->scaler, optimizer, lr, err) != 0) return -1;
    scaler->skipped += scaler->scaler.found_inf;
    return grad_scaler_update(&scaler->scaler, err);
}

void step_scaler_save(const StepScaler *scaler, Progress *progress) {
    const GradScalerState *state = &scaler->scaler.state;
    snprintf(progress->amp, sizeof progress->amp, "%s", train_amp_name(scaler->precision));
    progress->scale = is_scaled(scaler) ? (double)state->scale : 0;
    progress->growth_tracker = is_scaled(scaler) ? (uint64_t)state->growth_tracker : 0;
}

int step_scaler_load(StepScaler *scaler, const Progress *progress, Error *err) {
    GradScalerState state = grad_scaler_default();
    if (!is_scaled(scaler) || strcmp(progress->amp, train_amp_name(scaler->precision)) != 0)
        return 0;
    state.scale = (float)progress->scale;
    state.growth_tracker = (int64_t)progress->growth_tracker;
    return grad_scaler_load(&scaler->scaler, &state, err);
}
