/* late_losses.h: the losses of the last steps, on their way from the device to the host.
 *
 * A step is asked for, not waited for: while step k is computed, the host is already asking for
 * step k + 1, and learns the loss of step k afterwards.
 */
#ifndef COMMON_TRAIN_LATE_LOSSES_H
#define COMMON_TRAIN_LATE_LOSSES_H

#include "common/device/device.h"

enum { LATE_LOSSES = 2 }; // steps that are looked back at

typedef struct LateLosses {
    Readback *items[LATE_LOSSES]; // [1] float each; step k's is at k mod LATE_LOSSES
    size_t steps;                 // so far
} LateLosses;

LateLosses late_losses_open(Device *device);
void late_losses_close(LateLosses *losses);

// A step has been asked for, whose loss will be at `loss` ([1], device memory).
void late_losses_add(LateLosses *losses, const float *loss);
// The loss of the last step, or the one before it (back: 0 or 1): waits until that is computed.
double late_losses_get(const LateLosses *losses, int back);

#endif
