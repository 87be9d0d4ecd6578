/* gpu_driver.h: the number of GPUs, from CUDA's driver alone: no other library of CUDA is loaded,
 * and a build without CUDA counts as well.
 */
#ifndef COMMON_DEVICE_GPU_DRIVER_H
#define COMMON_DEVICE_GPU_DRIVER_H

#include "common/base/error.h"

// Returns the number of GPUs that the driver shows to this process, at least 1. That follows
// CUDA_VISIBLE_DEVICES, and includes the GPUs of WSL 2, which have no /dev/nvidiaN. Returns -1 with
// err filled: STATUS_SKIPPED if there is no driver or no GPU; STATUS_FAILED if the driver reports
// any other error.
//
// Initialises the driver, which starts threads in this process: children that are forked later
// cannot use CUDA.
int gpu_driver_count(Error *err);

#endif
