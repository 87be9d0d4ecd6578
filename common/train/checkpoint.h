/* checkpoint.h: stopping and going on as if nothing had happened.
 *
 * A checkpoint is two safetensors files. FILE holds the model's state under PyTorch's names, so
 * that load_state_dict(strict=True) takes it as it is, and in its metadata the trainer's place in
 * the run. FILE.STEP.optimizer holds the optimizer's tensors ("fc1.weight.momentum_buffer"). FILE
 * names the other one and is renamed into place last: a kill at any moment leaves the old pair or
 * the new one.
 */
#ifndef COMMON_TRAIN_CHECKPOINT_H
#define COMMON_TRAIN_CHECKPOINT_H

#include "common/nn/optimizer.h"

// Everything that a run is at between two steps, besides weights and optimizer state.
typedef struct Progress {
    uint64_t step;         // steps done
    uint64_t epoch, batch; // the next batch
    uint64_t seed, global_batch;
    double best; // best test accuracy so far (regression: lowest loss, negated); -INFINITY: none
} Progress;

int checkpoint_save(const char *path, Module *model, const Optimizer *optimizer,
                    const Progress *progress, Error *err);
// All or nothing. Errors: what safetensors.h reports, a file that is no checkpoint, an optimizer
// file that is missing or of another kind.
int checkpoint_load(const char *path, Module *model, Optimizer *optimizer, Progress *progress,
                    Error *err);

#endif
