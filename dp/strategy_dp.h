/* strategy_dp.h: DataParallel for the trainer. */
#ifndef DP_STRATEGY_DP_H
#define DP_STRATEGY_DP_H

#include "common/train/setup.h"
#include "common/train/strategy.h"
#include "dp/options.h"

// Opens the devices that the options ask for: without them all GPUs, as PyTorch does, or two CPU
// devices. Returns how many, or -1 with err filled.
int dp_open_devices(const TrainConfig *config, const DpOptions *dp, Device *devices[DP_MAX_DEVICES],
                    Error *err);

// The Strategy of a wrapper that data_parallel made over these devices. Owns everything it is given
// from now on. Says on stderr if the chunk rule leaves devices without work.
Strategy *strategy_dp(Module *wrapper, Device *const *devices, int device_count, Sampler *sampler);

#endif
