/* checkpoint.h: saves and restores a run, which continues bit for bit.
 *
 * A checkpoint is two safetensors files:
 *
 *     FILE                           the model's state under PyTorch's names, as
 *                                    load_state_dict(strict=True) expects it; in its metadata the
 *                                    Progress, and the other file's name and checksum
 *     FILE.STEP.CHECKSUM.optimizer   the optimizer's tensors ("fc1.weight.momentum_buffer"),
 *                                    and the strategy's state ("strategy/powersgd.q.fc1.weight")
 *
 * FILE is renamed into place last. The other file's name contains its checksum, so no save modifies
 * a file of a complete checkpoint: a kill at any moment leaves the old pair or the new one. The
 * next save to the same path removes the files of killed saves.
 */
#ifndef COMMON_TENSOR_FILES_CHECKPOINT_H
#define COMMON_TENSOR_FILES_CHECKPOINT_H

#include "common/nn/optimizer.h"
#include "common/tensor_files/safetensors.h"

typedef struct RunLog RunLog; // the trainer's; other programs pass NULL

// Settings that a resumed run may change, with a notice: as text, "" if unknown.
typedef enum ProgressNote {
    NOTE_LR,
    NOTE_SCHEDULE,
    NOTE_MOMENTUM,
    NOTE_WEIGHT_DECAY,
    NOTE_BETAS, // "" of sgd, and of checkpoints whose exp_avg_sq took 1 - beta2 of a rounded beta2
    NOTE_STEPS, // of the whole run
    NOTE_SAMPLER_SEED,
    NOTE_TEXT, // a hash of the text and its vocabulary; "" of other data
    PROGRESS_NOTES,
} ProgressNote;

// A run's state between two steps, besides weights and optimizer state.
typedef struct Progress {
    uint64_t step;         // number of completed steps
    uint64_t epoch, batch; // the next batch
    // Must be equal in a resumed run, or their change is logged (checks_resumed).
    uint64_t seed, global_batch, samples, shuffled, devices;
    double best;  // best test accuracy so far (regression: lowest loss, negated); -INFINITY: none
    char amp[8];  // the run's --amp
    double scale; // of fp16's GradScaler, as in PyTorch's state_dict; 0: none
    uint64_t growth_tracker;
    char notes[PROGRESS_NOTES][32];
    uint32_t checksum; // of both files of the loaded checkpoint; 0: not loaded
} Progress;

// Writes a checkpoint. The replaced one is kept as `previous`, in the same folder, unless previous
// is NULL. state: the strategy's tensors, in host memory; may be empty. Its tensor "optimizer/NAME"
// is the complete optimizer tensor NAME, of which a sharded optimizer holds a shard, and
// "model/NAME" that of a sharded parameter. Returns 0, or -1 with err filled.
int checkpoint_save(const char *path, const char *previous, Module *model,
                    const Optimizer *optimizer, const SafeTensors *state, const Progress *progress,
                    Error *err);
// Loads everything or, on error, nothing. *state receives the strategy's tensors
// (safetensors_free). Returns 0, or -1 with err filled: the errors of safetensors.h, a file that is
// not a checkpoint, and an optimizer file that is missing, of another kind, or not saved together
// with FILE.
int checkpoint_load(const char *path, Module *model, Optimizer *optimizer, SafeTensors *state,
                    Progress *progress, Error *err);
// Removes FILE and all its optimizer files.
void checkpoint_remove(const char *path);

// Sets *path to the folder's complete checkpoint with the most steps, freed by the caller; NULL if
// the folder has no checkpoint. Returns 0, or -1 with err filled if all checkpoints are damaged or
// the folder cannot be read. Logs skipped files with the reason.
int checkpoint_find(const char *folder, char **path, RunLog *log, Error *err);

typedef enum CheckpointState {
    CHECKPOINT_DAMAGED,
    CHECKPOINT_OTHER,
    CHECKPOINT_WHOLE
} CheckpointState;
// Checks both files without a model. OTHER: a file of tensors that is not part of a checkpoint.
// Fills err unless the checkpoint is WHOLE.
CheckpointState checkpoint_check(const char *path, Progress *progress, Error *err);

#endif
