/* workload.h: one rank's training step on random data, made of the trainer's own parts (tape, ops,
 * optimizer, and DistributedDataParallel when there is a group), for the programs that time steps.
 */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "common/nn/models.h"
#include "common/nn/optimizer.h"
#include "ddp/group/process_group.h"

typedef struct Workload {
    Device *device;
    Module *model;
    Module *module; // the model, or its DistributedDataParallel wrapper
    bool is_ddp;
    Optimizer *optimizer;
    Tape *tape;
    size_t batch, shape[3];
    float *samples;  // [batch, shape], random
    size_t length;   // of a text model's texts; others: 0, and `tokens` is NULL
    int64_t *tokens; // [batch, length], random
    size_t targets;  // batch, or batch length
    int64_t *labels; // [targets], random
} Workload;

// batch: the rows of this rank's step. group: NULL for a single device. Ends the program on an
// error.
Workload workload_open(const ModelConfig *config, Device *device, size_t batch,
                       ProcessGroup *group);
void workload_close(Workload *workload); // all but the device and the group
double
workload_step(Workload *workload); // forward, backward, reduce, SGD (texts: AdamW); returns seconds

double bench_median(double *values, size_t count); // sorts them

#endif
