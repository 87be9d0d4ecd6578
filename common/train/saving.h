/* saving.h: a run's checkpoints: saving (saving.c) and resuming (resuming.c). All functions return
 * 0, or -1 with err filled.
 */
#ifndef COMMON_TRAIN_SAVING_H
#define COMMON_TRAIN_SAVING_H

#include "common/train/run.h"

// Broadcasts which checkpoints the main process writes: gathering the job's state is collective,
// and another process's --out and --save may differ. Collective.
int saving_agree(Run *run, Error *err);

// Writes the last checkpoint, to --save's file or into --out. Collective.
int save_last(Run *run, Error *err);
// Writes a permanent checkpoint every --keep-epochs epochs: --out's model_00010.safetensors after
// ten epochs. Collective.
int save_epoch(Run *run, Error *err);
// Writes --out's best checkpoint if the evaluation is the best so far. Collective.
int save_if_best(Run *run, const Evaluation *evaluation, Error *err);

// Restores the checkpoint that --resume names; all processes continue at the same step. Collective.
int resume_run(Run *run, Error *err);

#endif
