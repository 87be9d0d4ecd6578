/* strategy_dp.h: the trainer's Strategy and Job of DataParallel. */
#ifndef DP_STRATEGY_DP_H
#define DP_STRATEGY_DP_H

#include "common/train/job.h"
#include "common/train/setup.h"
#include "dp/dp_options.h"

// Opens the options' devices; the default is all GPUs, as in PyTorch, or two CPU devices. Returns
// their number, or -1 with err filled.
int dp_open_devices(const TrainConfig *config, const DpOptions *dp, Device *devices[DP_MAX_DEVICES],
                    Error *err);

// Returns the Strategy of a wrapper of data_parallel; device: the first of its devices.
Strategy *strategy_dp(Module *wrapper, Device *device, Sampler *sampler);

// Returns the Job of that strategy over devices[device_count]. Owns the strategy, its wrapper and
// sampler, and the devices. Notes on stderr if the chunk rule leaves devices idle.
Job *job_dp(Strategy *strategy, Device *const *devices, int device_count);

#endif
