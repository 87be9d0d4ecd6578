/* saving.h: which checkpoints a run writes, and continuing from one (resuming.c). */
#ifndef COMMON_TRAIN_SAVING_H
#define COMMON_TRAIN_SAVING_H

#include "common/train/run.h"

// Finds out which checkpoints the main process writes: every process takes part in saving what the
// strategy carries, and its own --out and --save may name other files, or none. Collective.
int saving_agree(Run *run, Error *err);

// Writes the last checkpoint: --save's file, or that of --out. Collective.
int save_last(Run *run, Error *err);
// After every --keep-epochs epochs: writes a checkpoint that stays, --out's model_00010.safetensors
// after ten epochs. Collective.
int save_epoch(Run *run, Error *err);
// Writes --out's best checkpoint if the evaluation is the best so far. Collective.
int save_if_best(Run *run, const Evaluation *evaluation, Error *err);

// Continues from what --resume means. Collective: all processes continue at the same step.
int resume_run(Run *run, Error *err);

#endif
