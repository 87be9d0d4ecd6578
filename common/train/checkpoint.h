/* checkpoint.h: stopping and going on as if nothing had happened.
 *
 * A checkpoint is two safetensors files. FILE holds the model's state under PyTorch's names, so
 * that load_state_dict(strict=True) takes it as it is, and in its metadata the trainer's place in
 * the run. FILE.STEP.CHECKSUM.optimizer holds the optimizer's tensors
 * ("fc1.weight.momentum_buffer") and those that the strategy carries from step to step
 * ("strategy/powersgd.q.fc1.weight"; most carry nothing). FILE names the other one and its
 * checksum, and is renamed into place last. As the other's name follows from what is in it, no save
 * touches a file that a whole checkpoint needs: a kill at any moment leaves the old pair or the new
 * one. What killed saves left behind, the next one of the same path removes.
 */
#ifndef COMMON_TRAIN_CHECKPOINT_H
#define COMMON_TRAIN_CHECKPOINT_H

#include "common/base/log.h"
#include "common/nn/optimizer.h"
#include "common/train/safetensors.h"

// What a run may change when it is resumed, but not in silence: as text, "" where it is not known.
typedef enum ProgressNote {
    NOTE_LR,
    NOTE_SCHEDULE,
    NOTE_MOMENTUM,
    NOTE_WEIGHT_DECAY,
    NOTE_STEPS, // of the whole run
    NOTE_SAMPLER_SEED,
    NOTE_TEXT, // a hash of the text and its vocabulary; "" of other data
    PROGRESS_NOTES,
} ProgressNote;

// Where a run is between two steps, besides weights and optimizer state.
typedef struct Progress {
    uint64_t step;         // how many steps were taken
    uint64_t epoch, batch; // where the next batch is
    // What a resumed run must share with this one, or may not share without notice (checks.h).
    uint64_t seed, global_batch, samples, shuffled, devices;
    double best;  // best test accuracy so far (regression: lowest loss, negated); -INFINITY: none
    char amp[8];  // the precision that it was made with, as --amp calls it
    double scale; // of fp16's GradScaler, as in PyTorch's state_dict; 0: there is none
    uint64_t growth_tracker;
    char notes[PROGRESS_NOTES][24];
    uint32_t checksum; // of the checkpoint that it was read from, both files; 0: from none
} Progress;

// Writes a checkpoint. The one that it replaces is kept under the name `previous`, in the same
// folder, unless that name is NULL. `state` holds the strategy's tensors, under its own names and
// in host memory, and may be empty. What is called "optimizer/NAME" there is the whole of the
// optimizer's tensor NAME, of which a divided optimizer has only a part here.
int checkpoint_save(const char *path, const char *previous, Module *model,
                    const Optimizer *optimizer, const SafeTensors *state, const Progress *progress,
                    Error *err);
// Loads all or nothing. *state receives the strategy's tensors that were saved, for the strategy to
// look at; free it with safetensors_free. Errors are what safetensors.h reports, a file that is no
// checkpoint, and an optimizer file that is missing, of another kind, or not the one that was saved
// with it.
int checkpoint_load(const char *path, Module *model, Optimizer *optimizer, SafeTensors *state,
                    Progress *progress, Error *err);
// Removes FILE and all optimizer files that were saved under its name.
void checkpoint_remove(const char *path);

// Looks through the folder's *.safetensors for the whole checkpoint with the most steps
// (checkpoint_find.c). *path is then its path, which the caller frees, or NULL if there is none and
// never was one. Returns -1 if there are some and all are damaged, or if the folder cannot be read.
// Says on the log what it skips and why.
int checkpoint_find(const char *folder, char **path, Log *log, Error *err);

typedef enum CheckpointState {
    CHECKPOINT_DAMAGED,
    CHECKPOINT_OTHER,
    CHECKPOINT_WHOLE
} CheckpointState;
// Reads both files without a model. OTHER is a file of tensors that is no part of a checkpoint.
// Unless the checkpoint is WHOLE, err says why.
CheckpointState checkpoint_check(const char *path, Progress *progress, Error *err);

#endif
