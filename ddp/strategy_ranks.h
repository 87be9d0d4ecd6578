/* strategy_ranks.h: the part of the trainer's Strategy and Job that uses the ProcessGroup, common
 * to all wrappers that keep the ranks equal: sums over the ranks, the launcher's watch, traces,
 * counts of bytes.
 */
#ifndef DDP_STRATEGY_RANKS_H
#define DDP_STRATEGY_RANKS_H

#include "common/train/job.h"
#include "common/train/setup.h"
#include "ddp/rendezvous/init.h"

typedef struct Profile Profile; // common/base/profile.h

// Returns the Strategy of a rank that trains the model through `wrapper`, which may be the model
// itself, and owns both. The wrapper's own code sets hold_gradients, finish_backward and
// sync_buffers.
Strategy *strategy_ranks(Module *model, Module *wrapper, ProcessGroup *group, Device *device,
                         Sampler *sampler);

ProcessGroup *strategy_ranks_group(const Strategy *strategy);

// Charges the communication of this step's buckets to the profile, at the end of finish_backward.
void strategy_ranks_profile(const Strategy *strategy, Profile *profile);

// Checks that all ranks' samples have the same shape; needs no Job. Collective. Returns 0, or -1
// with err filled, which names the differing ranks.
int strategy_ranks_check_data(const TrainConfig *config, const DataSource *data,
                              ProcessGroup *group, Error *err);

// Returns the Job of that strategy. Owns the strategy, its wrapper, group, device and sampler.
// Starts reporting this rank's phase and step to the launcher.
Job *job_ranks(Strategy *strategy, const Rendezvous *me);

#endif
