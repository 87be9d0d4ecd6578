/* worker.h: the end of a device's thread, which device_submit starts. */
#ifndef COMMON_DEVICE_WORKER_H
#define COMMON_DEVICE_WORKER_H

#include "common/device/device.h"

// Ends the device's thread, if it has one, after its job.
void worker_close(Device *device);

#endif
