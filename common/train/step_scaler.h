/* step_scaler.h: --amp in a step: the precision of its tape and, with fp16, a GradScaler.
 *
 * The precision is PyTorch's autocast with the exceptions in tape.h, also in evaluation. With fp16
 * the scaler prevents underflow of gradients: they are reduced scaled, then unscaled. If a gradient
 * is not finite (a blocking readback), the optimizer's step is skipped: it does not count for the
 * optimizer (momentum, AdamW's step count), but for the schedule, as in PyTorch programs. The
 * recorded loss is unscaled: if it is not finite, the forward overflowed.
 */
#ifndef COMMON_TRAIN_STEP_SCALER_H
#define COMMON_TRAIN_STEP_SCALER_H

#include "common/nn/clip.h"
#include "common/nn/grad_scaler.h"
#include "common/tensor_files/checkpoint.h"
#include "common/train/train_config.h"

typedef struct StepScaler {
    Precision precision; // --amp
    GradScaler scaler;   // used with fp16 only
    double scale;        // the factor of the last step's loss in backward; 1 without a scaler
    GradClip *clip;      // NULL: without --clip-grad-norm
    double max_norm;     // upper bound of the norm of all gradients; 0: none
    uint64_t skipped;    // number of skipped optimizer steps
} StepScaler;

StepScaler step_scaler_open(const TrainConfig *config, const Optimizer *optimizer);
void step_scaler_close(StepScaler *scaler);
// Returns the root of backward: the loss, with fp16 times the scale.
Tensor *step_scaler_root(const StepScaler *scaler, Tape *tape, Tensor *loss);
// Runs the optimizer's step on unscaled gradients, clipped with --clip-grad-norm. With fp16 skips
// it if a gradient is not finite. Returns 0, or -1 with err filled.
int step_scaler_optimize(StepScaler *scaler, Optimizer *optimizer, double lr, Error *err);

// Save and load the precision and the scaler's state in a checkpoint. Without saved state the
// scaler keeps its defaults. Loading returns 0, or -1 with err filled if the state is invalid.
void step_scaler_save(const StepScaler *scaler, Progress *progress);
int step_scaler_load(StepScaler *scaler, const Progress *progress, Error *err);

#endif
