/* count_gpus.h: the ranks of `ddprun --nproc-per-node gpu`. */
#ifndef DDP_LAUNCH_COUNT_GPUS_H
#define DDP_LAUNCH_COUNT_GPUS_H

#include "common/base/error.h"

// Returns the number of GPUs that the driver shows (common/device/gpu_driver.h), at least 1.
// Returns -1 with err filled: gpu_driver_count's errors, or STATUS_FAILED if the driver crashes or
// does not answer within timeout_s.
int count_gpus(double timeout_s, Error *err);

#endif
