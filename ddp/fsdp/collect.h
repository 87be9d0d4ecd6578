/* collect.h: a model of shards between steps: hooks for its optimizer, and whole tensors for
 * checkpoints. Independent of its wrapper: fully_shard, or a file of the user's (ddp/fsdp/own).
 */
#ifndef DDP_FSDP_COLLECT_H
#define DDP_FSDP_COLLECT_H

#include "common/nn/optimizer.h"
#include "common/tensor_files/safetensors.h"
#include "ddp/fsdp/fully_shard.h"

typedef struct ShardedOptimizer {
    ProcessGroup *group;
    OptimizerSharding sharding;
    OptimizerPart *parts; // [parameters] of `sharding`: all elements of each shard; NULL: not open
    struct Fsdp *ahead;   // the model whose step gathers for the next forward; NULL: none
} ShardedOptimizer;

// Returns self->sharding for the shards of `root`. Returned again by further calls.
OptimizerSharding *sharded_optimizer(ShardedOptimizer *self, Module *root, ProcessGroup *group);

// fsdp_collect of a model that the ranks of this group shard.
int collect_shards(Module *root, ProcessGroup *group, FsdpCollected what,
                   const Optimizer *optimizer, SafeTensors *content, Error *err);

#endif
