/* late_losses.h: what the last steps came to, on its way from the device to the host: the loss, and
 * how many predictions were right.
 *
 * A step is asked for, not waited for: while step k is computed, the host is already asking for
 * step k + 1, and learns the loss of step k afterwards.
 */
#ifndef COMMON_TRAIN_LATE_LOSSES_H
#define COMMON_TRAIN_LATE_LOSSES_H

#include "common/train/hits.h"

enum { LATE_LOSSES = 2 }; // the losses of so many steps are kept: the last one's and the one before

typedef struct LateLosses {
    const Dataset *set;
    size_t parts;  // how many a step has (step_accumulated.h)
    float *total;  // [1], device memory: the sum of the losses of the parts of a step
    int64_t *hits; // [parts, hits_size], device memory: the hits of the step that is asked for now
    Readback *items[LATE_LOSSES];     // a float each; that of step k is at k mod LATE_LOSSES
    Readback *item_hits[LATE_LOSSES]; // copies of `hits`, at the same places as the losses
    size_t steps;                     // how many have been asked for
} LateLosses;

// Opens a record of steps on batches of the set, each step in so many parts.
LateLosses late_losses_open(Device *device, const Dataset *set, size_t parts);
void late_losses_close(LateLosses *losses, Device *device);

// Within a step: counts what is right among the outputs of a part.
void late_losses_count(const LateLosses *losses, Tape *tape, const BatchInput *input,
                       const BatchLoss *loss);
// A step has been asked for, whose loss will be at `loss` ([1], device memory).
void late_losses_add(LateLosses *losses, const float *loss);
// The loss of the last step, or the one before it (back: 0 or 1): waits until that is computed.
double late_losses_get(const LateLosses *losses, int back);
// The hits of that step, [hits_size]: the sum over its parts.
void late_losses_get_hits(const LateLosses *losses, int back, double *hits);

#endif
