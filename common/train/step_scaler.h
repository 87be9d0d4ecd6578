/* step_scaler.h: --amp in a step: the precision of its tape and, with fp16, a GradScaler.
 *
 * Precision is PyTorch's autocast, as far as tape.h says, in evaluation too. With fp16 the scaler
 * keeps gradients from vanishing: they are reduced scaled, then unscaled, and if one is not finite,
 * which the host waits to know, the optimizer is skipped. To the optimizer (momentum, AdamW's
 * count) that was no step; to the schedule it was, as in PyTorch programs. The loss that is told is
 * not scaled: where it is not finite, the forward overflowed, which no scale helps.
 */
#ifndef COMMON_TRAIN_STEP_SCALER_H
#define COMMON_TRAIN_STEP_SCALER_H

#include "common/nn/clip.h"
#include "common/nn/grad_scaler.h"
#include "common/train/checkpoint.h"
#include "common/train/train_config.h"

typedef struct StepScaler {
    Precision precision; // what --amp asks for
    GradScaler scaler;   // used with fp16 only
    double scale;        // the factor of the last step's loss in backward; 1 without a scaler
    GradClip *clip;      // NULL unless --clip-grad-norm asks for it
    double max_norm;     // the longest that all gradients together may be; 0: any length
    uint64_t skipped;    // how many steps the optimizer has skipped
} StepScaler;

StepScaler step_scaler_open(const TrainConfig *config, const Optimizer *optimizer);
void step_scaler_close(StepScaler *scaler);
// The tensor that backward starts at: the loss, with fp16 times the scale.
Tensor *step_scaler_root(const StepScaler *scaler, Tape *tape, Tensor *loss);
// Steps the optimizer, on gradients that are no longer scaled, and clipped if --clip-grad-norm says
// so. With fp16 the step is skipped if a gradient is not finite. Returns 0, or -1 with err filled.
int step_scaler_optimize(StepScaler *scaler, Optimizer *optimizer, double lr, Error *err);

// Save and load the precision and the scaler's state, which a checkpoint keeps. If the checkpoint
// has no scaler's state, the scaler starts anew. Returns -1 with err filled if no scaler can be in
// that state.
void step_scaler_save(const StepScaler *scaler, Progress *progress);
int step_scaler_load(StepScaler *scaler, const Progress *progress, Error *err);

#endif
