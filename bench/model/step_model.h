/* step_model.h: how long a training step takes on W devices, by algebra.
 *
 * It answers "what if there were 64 devices, on a 10 Gbit/s network?" from measurements of one
 * device. The page bench/model/README.md derives every line of it; step_model.js computes the same
 * in a browser, in the same order of operations, so that both give the same numbers.
 *
 * Every device has its own link and its own cores. Each takes `rows` rows in a step, so W devices
 * take W times as many.
 *
 *   DataParallel (DP)               DistributedDataParallel (DDP)
 *
 *   scatter, replicate              forward
 *   forward                         backward     all-reduce of bucket 0
 *   gather, loss, its gradient                   all-reduce of bucket 1
 *   backward                                       ... the rest is exposed
 *   reduce                          optimizer
 *   optimizer
 *
 * Fully sharded training (FSDP) gathers each unit's weights before its forward and before its
 * backward, the next unit's while one computes, and reduces and scatters its gradients after its
 * backward, while the next one computes. The time that it waits is exposed.
 *
 * A message of n bytes takes latency + n / bytes_per_s. A collective takes call_s besides, on any
 * number of devices above one. Times are seconds.
 */
#ifndef BENCH_MODEL_STEP_MODEL_H
#define BENCH_MODEL_STEP_MODEL_H

#include <stdbool.h>
#include <stddef.h>

enum { UNIT_ALONE = -1 };

// A parameter, in the order in which gradients become ready.
typedef struct ModelTensor {
    double bytes;
    double ready; // when its gradient is: 0 as backward begins, 1 as it ends
    int unit;     // FSDP's: 0 the root, which stays whole; UNIT_ALONE: it is one of its own
} ModelTensor;

// A time that grows with the rows: fixed + per_row * rows.
typedef struct RowTime {
    double fixed, per_row;
} RowTime;

// Measurements of one device (bench_profile writes it, profile_file.h reads it).
typedef struct StepProfile {
    char name[96];                     // of the network, for titles
    RowTime forward, loss, backward;   // loss with its gradient
    double optimizer;                  // one optimizer's step
    double sample_bytes, output_bytes; // of a row
    double messages;      // copies in which DP sends all weights to one device (small ones bundled)
    ModelTensor *tensors; // [tensor_count]
    size_t tensor_count;
} StepProfile;

typedef enum Algorithm {
    ALGORITHM_RING, // 2 (W - 1) rounds of bytes / W
    ALGORITHM_TREE, // up and down a binary tree: 2 ceil(log2 W) rounds of all bytes (FSDP: ring)
    ALGORITHM_HIERARCHICAL, // rings inside the nodes, then a ring between them for each device
} Algorithm;
#define ALGORITHM_NAMES "ring|tree|hierarchical"

typedef struct ModelLink {
    double bytes_per_s, latency_s;
} ModelLink;

typedef struct Cluster {
    int devices;
    ModelLink link;   // between nodes; of every device if there are no nodes
    ModelLink inside; // of the devices of one node; used where node_size > 1
    int node_size;    // devices in a node; 1: every device is a node
    Algorithm algorithm;
    double rows;          // of each device
    double bucket_cap_mb; // as DDP's option: 0 every tensor alone; negative: 1, then 25 MiB
    double straggler;     // factor of the slowest device's compute time; 1: no straggler
    bool overlap;         // false: nothing is reduced before backward has ended
    double call_s;        // of each all-reduce besides its messages: launch, bookkeeping
    // The cost of moves for a device's own core, where that core moves the bytes: seconds per byte
    // that DP copies, that DDP sums, or that FSDP gathers or reduces. 0: the network does it alone.
    double copy_s, sum_s, shard_s;
} Cluster;
// 2 devices, 10 Gbit/s, 10 us, ring, 64 rows, no straggler, no cost of a call.
Cluster cluster_default(void);

typedef enum ModelStrategy { MODEL_DP, MODEL_DDP, MODEL_FSDP, MODEL_STRATEGIES } ModelStrategy;

// The time of the device that drives the step, by parts; `step` is their sum.
typedef struct StepParts {
    double scatter, replicate, forward, gather, loss, backward, reduce, exposed, optimizer, step;
} StepParts;

// A bucket's way through the step: seconds since backward began.
typedef struct BucketTime {
    double bytes, ready, begin, end;
    double share; // of backward, after which its tensors are complete
    size_t tensors;
} BucketTime;

double model_row_time(RowTime time, double rows); // seconds

// The buckets as the Reducer makes them after its first step, by ddp/buckets.h. Fills at most
// tensor_count buckets and returns how many. begin and end are those of this cluster.
size_t model_buckets(const StepProfile *profile, const Cluster *cluster, BucketTime *buckets);

// Carries out a gather or a reduction of a rank of FSDP, which is enqueued `start` seconds into the
// step, after the previous move. Returns when it ends.
typedef double FsdpMove(void *context, double start, double bytes);
// The seconds in which a rank that computes `slow` times as long waits for its moves, or copies.
double model_fsdp_exposed(const StepProfile *profile, const Cluster *cluster, double slow,
                          FsdpMove *move, void *context);

// How many messages a step sends, by FSDP at most: for a simulation, which sends each.
double model_messages(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy);

StepParts model_single(const StepProfile *profile, double rows);
// A step with these buckets, [count] of model_buckets; sets ready, begin and end to this cluster's.
StepParts model_ddp(const StepProfile *profile, const Cluster *cluster, BucketTime *buckets,
                    size_t count);
StepParts model_step(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy);

// The Gbit/s at which W devices train as many rows a second as one device does; on a slower network
// they are slower than one. 0: they are faster on any; INFINITY: on none.
double model_break_even(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy);

void step_profile_free(StepProfile *profile);

#endif
