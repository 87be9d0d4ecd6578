/* 02-dp-traffic.h: predict the bytes that DataParallel copies in a step.
 *
 * In every step, each device that gets rows, except the first, receives the weights, its rows of
 * the input, and the gradient of its rows of the output. The first device receives their outputs
 * and their gradients. Tensors of the first device itself are not copied. All numbers are floats of
 * 4 bytes.
 *
 * Your prediction is compared with the library's count of the copied bytes.
 */
#ifndef TUTORIALS_DP_TRAFFIC_H
#define TUTORIALS_DP_TRAFFIC_H

#include <stddef.h>

typedef struct DpJob {
    size_t weights;    // numbers in the model
    size_t input_row;  // numbers in a row of the input
    size_t output_row; // numbers in a row of the output
    size_t rows;       // of the batch
    size_t devices;
} DpJob;

typedef struct DpTraffic {
    size_t to_first;  // bytes that the first device receives in a step
    size_t to_others; // bytes that all the others receive together
} DpTraffic;

// The cut is chunk_bounds of common/data/sampler.h.
DpTraffic dp_traffic(const DpJob *job);

#endif
