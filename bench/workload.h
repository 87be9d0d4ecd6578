/* workload.h: one rank's training step on random data, made of the trainer's own parts (tape, ops,
 * optimizer, and DistributedDataParallel when there is a group), for the programs that time steps;
 * and statistics of their times.
 */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "common/nn/models.h"
#include "common/nn/optimizer.h"
#include "ddp/group/process_group.h"

typedef struct Workload {
    Device *device; // the caller's
    Module *model;
    Module *module; // the model, or its DistributedDataParallel wrapper
    bool is_ddp;
    Optimizer *optimizer;
    Tape *tape;
    size_t batch, shape[3];
    float *samples;  // [batch, shape], random numbers in host memory
    size_t length;   // the tokens of a sample for a gpt; 0 for other models, and `tokens` is unused
    int64_t *tokens; // [batch, length], random; NULL if length is 0
    bool is_dense;   // a label for each pixel
    size_t targets;  // how many labels there are: one for each sample, token or pixel
    int64_t *labels; // [targets], random
    int64_t *hits;   // [1], device memory: right predictions of the last step
} Workload;

// Makes the model and a batch of so many rows for this rank. group is the caller's, and NULL for a
// single device. Ends the program on an error.
Workload workload_open(const ModelConfig *config, Device *device, size_t batch,
                       ProcessGroup *group);
// Before the first step: steps are computed in this precision, as with the trainer's --amp.
void workload_use_precision(Workload *workload, Precision precision);
// Closes all but the device and the group.
void workload_close(Workload *workload);
// Takes a step: forward, backward, the reduction if there is a group, and the optimizer, which is
// SGD, or AdamW for a gpt. Returns how many seconds it took.
double workload_step(Workload *workload);

// Sorts the values, count > 0, from the smallest to the largest, and returns their q-quantile,
// which lies between two of them by its distance. q is from 0 to 1; 0.5 asks for the median.
double bench_quantile(double *values, size_t count, double q);
double bench_median(double *values, size_t count);

#endif
