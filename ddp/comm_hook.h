/* comm_hook.h: a communication hook replaces the all-reduce of a full bucket of gradients
 * (PyTorch's communication hooks). ddp_register_comm_hook sets a wrapped model's single hook;
 * built-in hooks are in ddp/features/ (comm_hooks.h and others).
 *
 * A hook is a table of functions and a state, taken by value. A function marked optional may be
 * NULL. A function that returns an int returns 0, or -1 with err filled; if it leaves err empty,
 * the reducer fills in an error that names the function.
 */
#ifndef DDP_COMM_HOOK_H
#define DDP_COMM_HOOK_H

#include "common/nn/module.h"
#include "ddp/group/process_group.h"

typedef struct GradBucket {
    size_t index;
    bool is_last;
    Device *device;
    float *buffer; // [count], shared memory: gradients, each padded with zeros to a cache line
    size_t count;
    Tensor **parameters; // [parameter_count] in the order of their gradients in the buffer
    size_t parameter_count;
    ReduceOp op;      // how the ranks' gradients are combined: PG_AVG or PG_SUM
    PgWork *work;     // the hook's, from its start to its finish
    uint64_t done_ns; // clock_ns when communication ended; 0: unknown
} GradBucket;

// The all-reduce of the whole buffer, its elements read as `type`. DDP's default reduction has two
// lines in start and one in finish:
//
//     bucket->work = pg_start(group, grad_bucket_all_reduce(bucket, PG_F32, bucket->op), err);
//     return bucket->work ? 0 : -1;
//
//     return pg_work_wait(bucket->work, NULL, &bucket->done_ns, err);
static inline Collective grad_bucket_all_reduce(const GradBucket *bucket, PgType type,
                                                ReduceOp op) {
    return pg_of_bucket(pg_all_reduce(bucket->buffer, bucket->count, type, op), bucket->index);
}

typedef struct RunLog RunLog;                       // the trainer's
typedef struct SafeTensors SafeTensors;             // common/tensor_files/safetensors.h
typedef struct OptimizerSharding OptimizerSharding; // common/nn/optimizer.h

// start is called inside backward as soon as the bucket is full; finish after backward, for every
// bucket whose start succeeded. Both are called in index order on every rank. After finish the
// buffer holds the gradients. (PyTorch's hook returns a future: callbacks chained to the future
// correspond to finish.)
typedef struct CommHook {
    const char *name;
    void *state;
    OptimizerSharding *sharding; // optional: owned by the hook; shards the optimizer
    int (*start)(void *state, GradBucket *bucket, Error *err);
    int (*finish)(void *state, GradBucket *bucket, Error *err);
    void (*close)(void *state); // optional
    // The hook's state between steps, for checkpoints. Optional, but both or none. save is
    // collective: rank 0's *content receives all ranks' state (safetensors_free), the others' is
    // empty. load restores this rank's state, on every rank; `path` names the file in messages; the
    // log names state that cannot continue bit for bit.
    int (*save)(void *state, SafeTensors *content, Error *err);
    int (*load)(void *state, const char *path, const SafeTensors *content, RunLog *log, Error *err);
    bool graph_safe; // --cuda-graph may capture the hook (reducer_unrecordable); default false
} CommHook;

#endif
