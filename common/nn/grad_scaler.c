/* grad_scaler.c: scaling on the tape, one pass over the gradients, and the rule for the scale.
 *
 * The kernel that unscales also detects inf and NaN, in a flag in device memory. The host waits for
 * the flag, because the host decides whether to step.
 */
#include "common/nn/grad_scaler.h"

#include <math.h>

#include "common/base/memory.h"
#include "common/nn/ops.h"

GradScalerState grad_scaler_default(void) {
    return (GradScalerState){
        .scale = 65536, .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 2000};
}

// The comparisons are written so that a NaN fails.
int grad_scaler_load(GradScaler *scaler, const GradScalerState *state, Error *err) {
    if (!(state->growth_factor > 1))
        return error_set(err, STATUS_USAGE, "The growth factor must be > 1.0, not %g.",
                         state->growth_factor);
    if (!(state->backoff_factor > 0 && state->backoff_factor < 1))
        return error_set(err, STATUS_USAGE, "The backoff factor must be < 1.0 and > 0, not %g.",
                         state->backoff_factor);
    if (!(state->scale > 0 && isfinite(state->scale)))
        return error_set(err, STATUS_USAGE, "The scale must be positive and finite, not %g.",
                         (double)state->scale);
    if (state->growth_tracker < 0 || state->growth_tracker >= state->growth_interval)
        return error_set(err, STATUS_USAGE,
                         "%lld good steps do not fit a growth interval of %lld steps.",
                         (long long)state->growth_tracker, (long long)state->growth_interval);
    *scaler = (GradScaler){.state = *state, .stage = SCALER_READY};
    return 0;
}

Tensor *grad_scaler_scale(const GradScaler *scaler, Tape *tape, Tensor *loss) {
    return op_divide(tape, loss, 1.0 / (double)scaler->state.scale);
}

// Unscales the gradients of parameters that lie on one device. Returns how many there are.
static size_t unscale_run(GradScaler *scaler, const Optimizer *optimizer, const OptimizerRun *run) {
    Slice *slices = memory_zalloc(run->count * sizeof *slices);
    size_t count = 0;
    for (size_t i = run->first; i < run->first + run->count; i++) {
        const Tensor *parameter = optimizer->parameters.items[i].tensor;
        if (parameter->has_grad)
            slices[count++] = (Slice){parameter->grad, tensor_count(parameter)};
    }
    float inverse = (float)(1.0 / (double)scaler->state.scale), found = 0;
    float *flag = device_alloc(run->device, sizeof *flag);
    device_kernels(run->device)->elementwise->fill(flag, 0, 1);
    device_kernels(run->device)->slices->unscale(slices, count, inverse, flag);
    device_copy(NULL, &found, run->device, flag, sizeof found);
    device_free(run->device, flag, sizeof *flag);
    free(slices);
    scaler->found_inf = scaler->found_inf || found != 0;
    return count;
}

// Where each process has its shards of the gradients alone, they find out together.
static void find_together(GradScaler *scaler, const Optimizer *optimizer) {
    const OptimizerSharding *sharding = optimizer->config.sharding;
    if (!sharding || sharding->has_whole || optimizer->run_count == 0) return;
    Device *device = optimizer->runs[0].device;
    int64_t found = scaler->found_inf, *sum = device_alloc(device, sizeof *sum);
    device_copy(device, sum, NULL, &found, sizeof found);
    sharding->add_up(sharding->state, sum, 1);
    device_copy(NULL, &found, device, sum, sizeof found);
    device_free(device, sum, sizeof *sum);
    scaler->found_inf = found != 0;
}

int grad_scaler_unscale(GradScaler *scaler, Optimizer *optimizer, Error *err) {
    if (scaler->stage == SCALER_UNSCALED)
        return error_set(err, STATUS_FAILED,
                         "unscale_() has already been called on this optimizer since the last "
                         "update().");
    if (scaler->stage == SCALER_STEPPED)
        return error_set(err, STATUS_FAILED, "unscale_() is being called after step().");
    size_t seen = 0;
    scaler->found_inf = false;
    for (size_t r = 0; r < optimizer->run_count; r++)
        seen += unscale_run(scaler, optimizer, &optimizer->runs[r]);
    if (seen == 0)
        return error_set(err, STATUS_FAILED, "No inf checks were recorded for this optimizer.");
    find_together(scaler, optimizer);
    scaler->stage = SCALER_UNSCALED;
    return 0;
}

int grad_scaler_step(GradScaler *scaler, Optimizer *optimizer, double lr, Error *err) {
    if (scaler->stage == SCALER_STEPPED)
        return error_set(err, STATUS_FAILED,
                         "step() has already been called since the last update().");
    if (scaler->stage == SCALER_READY && grad_scaler_unscale(scaler, optimizer, err) != 0)
        return -1;
    if (!scaler->found_inf) optimizer_step(optimizer, lr);
    scaler->stage = SCALER_STEPPED;
    return 0;
}

int grad_scaler_update(GradScaler *scaler, Error *err) {
    GradScalerState *state = &scaler->state;
    if (scaler->stage == SCALER_READY)
        return error_set(err, STATUS_FAILED, "No inf checks were recorded prior to update.");
    scaler->stage = SCALER_READY;
    if (scaler->found_inf) {
        state->scale = (float)((double)state->scale * state->backoff_factor);
        state->growth_tracker = 0;
    } else if (++state->growth_tracker == state->growth_interval) {
        float grown = (float)((double)state->scale * state->growth_factor);
        if (isfinite(grown)) state->scale = grown;
        state->growth_tracker = 0;
    }
    return 0;
}
