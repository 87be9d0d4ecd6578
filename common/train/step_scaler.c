/* step_scaler.c: gradient scaling (--amp fp16) and clipping around the optimizer's step.
 *
 * The precision is PyTorch's autocast with the exceptions in tape.h, also in evaluation. With fp16
 * the scaler prevents underflow of gradients: they are reduced scaled, then unscaled. If a gradient
 * is not finite (a blocking readback), the optimizer's step is skipped: it does not count for the
 * optimizer (momentum, AdamW's step count), but for the schedule, as in PyTorch programs. The
 * recorded loss is unscaled: if it is not finite, the forward overflowed.
 */
#include <string.h>

#include "common/train/step.h"

int step_scaler_optimize(Step *step, double lr, Error *err) {
    GradScaler *scaler = &step->scaler;
    const double max_norm = step->config->clip_grad_norm;
    if (step->config->amp != PRECISION_F16) {
        if (step->clip) grad_clip_queue(step->clip, max_norm);
        optimizer_step(step->optimizer, lr);
        return 0;
    }
    if (step->clip) {
        if (grad_scaler_unscale(scaler, step->optimizer, err) != 0) return -1;
        if (!scaler->found_inf) grad_clip_queue(step->clip, max_norm);
    }
    step->scale = (double)scaler->state.scale;
    if (grad_scaler_step(scaler, step->optimizer, lr, err) != 0) return -1;
    step->skipped += scaler->found_inf;
    return grad_scaler_update(scaler, err);
}

void step_scaler_save(const Step *step, Progress *progress) {
    const Precision amp = step->config->amp;
    const GradScalerState *state = &step->scaler.state;
    snprintf(progress->amp, sizeof progress->amp, "%s", train_amp_name(amp));
    progress->scale = amp == PRECISION_F16 ? (double)state->scale : 0;
    progress->growth_tracker = amp == PRECISION_F16 ? (uint64_t)state->growth_tracker : 0;
}

int step_scaler_load(Step *step, const Progress *progress, Error *err) {
    GradScalerState state = grad_scaler_default();
    if (step->config->amp != PRECISION_F16 || strcmp(progress->amp, "fp16") != 0) return 0;
    state.scale = (float)progress->scale;
    state.growth_tracker = (int64_t)progress->growth_tracker;
    return grad_scaler_load(&step->scaler, &state, err);
}
