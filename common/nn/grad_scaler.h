/* grad_scaler.h: PyTorch's GradScaler: scales the loss, so that 16-bit gradients do not underflow.
 *
 *     tape_backward(tape, grad_scaler_scale(&scaler, tape, loss), &err);
 *     ddp_finish_backward(wrapper, NULL, &err);          // reduces scaled gradients
 *     grad_scaler_unscale(&scaler, optimizer, &err);     // only to read or clip gradients
 *     grad_scaler_step(&scaler, optimizer, lr, &err);    // or skips it
 *     grad_scaler_update(&scaler, &err);
 *
 * A loss times 65536 has gradients times 65536. If one of them is not finite, the scale was too
 * large: the step is skipped and the scale halved. After 2000 good steps it is doubled. With a
 * power of two and nothing that overflows or underflows, the weights are those without a scaler,
 * bit for bit.
 *
 * It does not communicate, except where each process has shards of the gradients alone
 * (OptimizerSharding): then the processes add their counts of inf and NaN. In DDP one rank's inf or
 * NaN reaches every rank through the all-reduce, so all ranks have the same gradients and decide
 * alike. This does not hold if a rank steps on gradients that were not reduced (no_sync), if
 * gradients are unscaled before the reduction, or if a communication hook clips.
 *
 * One scaler is for one optimizer. There are no 16-bit gradients here, which PyTorch refuses.
 * Source: torch/amp/grad_scaler.py; aten/src/ATen/native/AmpKernels (_amp_update_scale_).
 */
#ifndef COMMON_NN_GRAD_SCALER_H
#define COMMON_NN_GRAD_SCALER_H

#include "common/nn/optimizer.h"

// The state in a checkpoint, PyTorch's state_dict. A copy of scaler.state saves it: no pointers.
typedef struct GradScalerState {
    float scale;
    double growth_factor, backoff_factor; // over 1, under 1
    int64_t growth_interval;              // good steps before the scale grows
    int64_t growth_tracker;               // good steps since it last changed, or would have
} GradScalerState;

typedef enum GradScalerStage { SCALER_READY, SCALER_UNSCALED, SCALER_STEPPED } GradScalerStage;

typedef struct GradScaler {
    GradScalerState state;
    // State of the current step, until grad_scaler_update:
    GradScalerStage stage;
    bool found_inf; // valid once unscaled: some element of some gradient was inf or NaN
} GradScaler;

// PyTorch's defaults: 65536, 2, 0.5, 2000.
GradScalerState grad_scaler_default(void);

// Starts a scaler, or restores a saved state. If the state is invalid, returns -1 with err filled
// and leaves the scaler unchanged.
int grad_scaler_load(GradScaler *scaler, const GradScalerState *state, Error *err);

// Returns loss (a scalar) times the scale, on the tape.
Tensor *grad_scaler_scale(const GradScaler *scaler, Tape *tape, Tensor *loss);

// Multiplies the optimizer's gradients by 1 / scale (computed in double, rounded to float) and
// records whether one was inf or NaN. At most once per step; otherwise returns -1 with PyTorch's
// error.
int grad_scaler_unscale(GradScaler *scaler, Optimizer *optimizer, Error *err);

// Unscales if grad_scaler_unscale was not called, then steps unless a gradient was inf or NaN. At
// most once per update; otherwise returns -1 with PyTorch's error.
int grad_scaler_step(GradScaler *scaler, Optimizer *optimizer, double lr, Error *err);

// Sets the next step's scale from this step's found_inf. Returns -1 with err filled if no gradient
// was unscaled.
int grad_scaler_update(GradScaler *scaler, Error *err);

#endif
