/* late_losses.h: asynchronous readback of the last two steps' losses and hits (correct predictions)
 * from the device.
 *
 * Steps are enqueued without waiting: while the device computes step k, the host enqueues step
 * k + 1, and reads the loss of step k back after that.
 *
 *     late_losses_count(&losses, tape, input, loss);    // in the step, for each micro-batch
 *     late_losses_add(&losses, loss);                   // at its end: starts the readback
 *     late_losses_get(&losses, 1);                      // one step later: waits for it
 */
#ifndef COMMON_TRAIN_LATE_LOSSES_H
#define COMMON_TRAIN_LATE_LOSSES_H

#include "common/train/hits.h"

enum { LATE_LOSSES = 2 }; // number of steps whose losses are kept

typedef struct LateLosses {
    const Dataset *set;
    size_t parts;                 // micro-batches of a step (step_accumulated.c)
    float *total;                 // [1], device memory: the sum of the micro-batches' losses
    int64_t *hits;                // [parts, hits_size], device memory: the hits of the current step
    Readback *items[LATE_LOSSES]; // a float each; step k at index k mod LATE_LOSSES
    Readback *item_hits[LATE_LOSSES]; // copies of `hits`, at the same indices
    size_t steps;                     // number of enqueued steps
} LateLosses;

// Opens the readback of steps on batches of the set, each step in `parts` micro-batches.
LateLosses late_losses_open(Device *device, const Dataset *set, size_t parts);
void late_losses_close(LateLosses *losses, Device *device);

// Enqueues counting the hits of the selected micro-batch.
void late_losses_count(const LateLosses *losses, Tape *tape, const BatchInput *input,
                       const BatchLoss *loss);
// Ends an enqueued step, whose loss is at `loss` ([1], device memory): starts the readback.
void late_losses_add(LateLosses *losses, const float *loss);
// Waits for the loss of the last step (back 0) or the one before it (1) and returns it.
double late_losses_get(const LateLosses *losses, int back);
// Waits for that step's hits, [hits_size], summed over its micro-batches.
void late_losses_get_hits(const LateLosses *losses, int back, double *hits);

#endif
