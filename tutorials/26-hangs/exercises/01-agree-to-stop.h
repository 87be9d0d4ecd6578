/* 01-agree-to-stop.h: early stopping, decided by all ranks together.
 *
 * After each epoch every rank has evaluated some rows of the validation set, and has the sum of
 * their losses. The decision depends on the mean over all rows of all ranks:
 *
 * - if it is smaller than state->best, state->best is set to it, and state->waited to 0;
 * - else state->waited is incremented;
 * - *stop is true if state->waited has reached state->patience.
 *
 * All ranks must return the same answer: a rank that continues waits in the next collective for
 * a rank that has stopped. A rank without rows must take part, too. One all-reduce is enough: sums
 * may be added, and counts, too.
 */
#ifndef TUTORIALS_AGREE_TO_STOP_H
#define TUTORIALS_AGREE_TO_STOP_H

#include "ddp/group/process_group.h"

typedef struct EarlyStop { // every rank has one
    double best;           // the smallest mean loss so far; initially infinite
    int waited, patience;  // epochs without a better mean; the number at which training stops
} EarlyStop;

// loss_sum: over this rank's `rows` rows. Sets *stop. Returns 0, or -1 with err filled.
int agree_to_stop(ProcessGroup *group, EarlyStop *state, double loss_sum, size_t rows, bool *stop,
                  Error *err);

#endif
