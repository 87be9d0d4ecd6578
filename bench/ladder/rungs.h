/* rungs.h: the ladder from DataParallel to DistributedDataParallel. Each rung is a training step
 * that has one ingredient more than the one below it, and computes the same weights.
 */
#ifndef BENCH_LADDER_RUNGS_H
#define BENCH_LADDER_RUNGS_H

#include "common/data/dataset.h"
#include "common/train/train_config.h"
#include "ddp/group/process_group.h"

enum { LADDER_DEVICES_MAX = 64 };

// The ingredients, from the bottom up. A rung has its own ingredient and all earlier ones.
typedef enum Ingredient {
    FRESH_THREADS,  // PyTorch's DataParallel: each forward starts a thread per device
    KEPT_THREADS,   // each device keeps its thread: train_dp's step
    KEPT_WEIGHTS,   // each device keeps its weights, which are sent to it after each update
    LOCAL_LOSS,     // each device has the labels of its rows, and computes their part of the loss
    ALL_REDUCE,     // all devices receive the sum of the gradients, computed by the first device
    OWN_OPTIMIZER,  // each device updates its own weights, which are no longer sent
    PROCESSES,      // each device is a process; devices communicate only in the all-reduce
    PER_PARAMETER,  // an all-reduce for each parameter, in which each process sums a part
    FLAT_GRADIENTS, // one all-reduce for all parameters
    BUCKETS,        // the all-reduce is divided into buckets
    OVERLAP,        // each bucket starts when backward has filled it: train_ddp's step
    RUNGS
} Ingredient;

const char *ingredient_name(Ingredient ingredient); // "kept threads"
const char *ingredient_says(Ingredient ingredient); // its change, in a few words
bool ingredient_is_rank(Ingredient ingredient);     // its devices are processes, not threads

// The training data of all rungs: the same batches in the same order, in the host's memory.
typedef struct Course {
    const TrainConfig *config;
    const DataSource *data;
    const float *samples;  // [batches, rows, sample]
    const int64_t *labels; // [batches, rows]
    size_t batches, rows, sample;
    int devices;
    double bucket_cap_mb;
} Course;

typedef struct Rung Rung;
// Opens a rung. If its devices are threads, this process opens all of them, and uses neither group
// nor device. If they are processes, this one is a rank of the group, its device is the caller's,
// and all ranks open the rung. Ends the program on an error.
Rung *rung_open(const Course *course, Ingredient ingredient, ProcessGroup *group, Device *device);
void rung_close(Rung *rung);
// Trains on the next batch: forward, backward, reduction and update.
void rung_step(Rung *rung);
// The model of the first device, or of this rank.
Module *rung_model(const Rung *rung);

#endif
