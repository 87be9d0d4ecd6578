/* 02-same-batch.h: more devices for the same batch.
 *
 * In this step's program every device has the same rows, however many there are, and W devices do W
 * times the work (this is called weak scaling). To train the same in less time, keep the batch
 * instead: W devices share its rows, and each computes for compute_s / W (strong scaling;
 * --global-batch). But each of them has gradients of all weights, however few
 * its rows are. A ring reduces them in
 *
 *     2 (W - 1) (latency_s + bytes / W / bytes_per_s)
 *
 * seconds; one device has nothing to reduce. Without overlap, a step is the sum of the two. It
 * becomes shorter with the first devices, and from some number on longer.
 */
#ifndef TUTORIALS_SAME_BATCH_H
#define TUTORIALS_SAME_BATCH_H

typedef struct SameBatch {
    double compute_s;              // of all rows of the batch, on one device
    double bytes;                  // of the gradients
    double latency_s, bytes_per_s; // of a message, and of each device's link
} SameBatch;

double same_batch_step_s(SameBatch job, int devices);
// How many devices, from 1 to `most`, make the step shortest? Among equals, the fewest.
int best_devices(SameBatch job, int most);

#endif
