/* 02-same-batch.c: the step, and its shortest. The task is in 02-same-batch.h. */
#include "tutorials/28-what-it-buys/exercises/02-same-batch.h"

// SOLUTION BEGIN
double same_batch_step_s(SameBatch job, int devices) {
    double round = job.latency_s + job.bytes / devices / job.bytes_per_s;
    return job.compute_s / devices + 2 * (devices - 1) * round;
}

int best_devices(SameBatch job, int most) {
    int best = 1;
    for (int devices = 2; devices <= most; devices++)
        if (same_batch_step_s(job, devices) < same_batch_step_s(job, best)) best = devices;
    return best;
}
// SOLUTION END
