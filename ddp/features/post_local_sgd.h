/* post_local_sgd.h: post-local SGD (Lin et al. 2018): all ranks average gradients for the first
 * steps; then only the ranks of a subgroup do (say, those of one machine), or none, and every
 * `period` steps all ranks average their parameters instead.
 */
#ifndef DDP_FEATURES_POST_LOCAL_SGD_H
#define DDP_FEATURES_POST_LOCAL_SGD_H

#include "ddp/comm_hook.h"

typedef struct PostLocalSgd {
    ProcessGroup *group;
    ProcessGroup *subgroup; // averages after the start; NULL: gradients are not averaged then
    uint64_t start_step;    // number of steps in which all ranks average
    int64_t step;           // steps so far; incremented by a step's last bucket
} PostLocalSgd;

// The state stays the caller's, and outlives the hook. Checkpoints hold its step.
CommHook post_local_sgd_hook(PostLocalSgd *state);

// PyTorch's PeriodicModelAverager, called after each optimizer step. A resumed program sets its
// step to the steps done.
typedef struct ModelAverager {
    uint64_t period, warmup_steps;
    int64_t step;
} ModelAverager;

// Averages the parameters over the group if it is time, which is the same on all ranks. Returns 0,
// or -1 with err filled.
int model_averager_step(ModelAverager *averager, Module *model, ProcessGroup *group, Error *err);

#endif
