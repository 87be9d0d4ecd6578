/* 02-same-batch.h: more devices for the same batch.
 *
 * In this step's program every device has the same number of rows, for any number of devices, and W
 * devices do W times the work (this is called weak scaling). To do the same training in less time,
 * keep the batch instead: W devices divide its rows, and each computes for compute_s / W (strong
 * scaling; --global-batch). But each of them has gradients of all weights, also with few rows. A
 * ring reduces them in
 *
 *     2 (W - 1) (latency_s + bytes / W / bytes_per_s)
 *
 * seconds; one device needs no reduction. Without overlap, the time of a step is the sum of the
 * two. It falls with the first devices, and from some number on it grows.
 */
#ifndef TUTORIALS_SAME_BATCH_H
#define TUTORIALS_SAME_BATCH_H

typedef struct SameBatch {
    double compute_s;              // of all rows of the batch, on one device
    double bytes;                  // of the gradients
    double latency_s, bytes_per_s; // of a message, and of each device's link
} SameBatch;

double same_batch_step_s(SameBatch job, int devices);
// Returns the number of devices, from 1 to `most`, with the shortest step; among equals, the least.
int best_devices(SameBatch job, int most);

#endif
