/* fully_shard.h: fully sharded data parallel: PyTorch's fully_shard (FSDP2, after ZeRO stage 3,
 * Rajbhandari et al. 2020).
 *
 * Each rank keeps 1/W of every weight, gradient and optimizer state, and trains on its own rows as
 * in DistributedDataParallel. fully_shard is called for blocks first and for the root last:
 *
 *     for (i = 0; i < blocks; i++) fully_shard(block[i], group, &config, &err);
 *     fully_shard(model, group, &config, &err);
 *
 * Each call makes one *unit* of the parameters that no inner call has taken; a parameter shared
 * with a module outside (a tied embedding) is left to an outer call. A parameter [n, ...] is cut
 * along dim 0 by torch.chunk's rule: rank r has rows [r c, min((r + 1) c, n)), c = ceil(n / W).
 *
 *     forward of a unit     all_gather the weights, compute, free them (the root keeps them)
 *     backward              all_gather them again, compute, reduce_scatter the gradients, free both
 *     optimizer             steps this rank's shards, which are ordinary parameters to it
 *
 * On the tape these are two identity operations around the unit: "reduce_scatter" on its input,
 * whose backward reduces and frees, and "all_gather" on its output, whose backward gathers.
 *
 * A parameter's Tensor is in one of two states: *sharded* (shape[0], data and grad are the shard's;
 * Tensor.shard says which rows), or *whole*, within its unit's forward and backward.
 *
 * Overlap: while a unit computes, the next one's weights are gathered, in the order of the last
 * forward or the reverse order of this one, and the last unit's gradients are reduced. So besides
 * the root two units' weights are in memory: one in use, one arriving.
 *
 *                                  DDP    ZeRO-1      here
 *   bytes per parameter, AdamW     16     8 + 8/W     16/W, + the root and two units
 *   bytes moved per step            1     1           1.5; 1 without reshard_after_forward
 *
 * Bits: on shm and mpi, weights, optimizer state and buffers equal DistributedDataParallel's bit
 * for bit, for every W, set of units and timing: each element is summed in rank order and stepped
 * once, by the same operations. (Exception: several reduced backwards before one step, where DDP
 * averages the sum again and this adds averages, equal to rounding.) Weights gathered in 16 bits
 * (config.precision) are the ones that autocast rounds to 16 bits in any case.
 *
 * Unlike PyTorch: batch norm's buffers stay each rank's own in training, as there, and rank 0's are
 * broadcast before evaluation (fsdp_sync_buffers). Left out: unshard by hand, ignored parameters,
 * sharded checkpoints.
 */
#ifndef DDP_FSDP_FULLY_SHARD_H
#define DDP_FSDP_FULLY_SHARD_H

#include "common/nn/module.h"
#include "common/nn/optimizer.h"
#include "common/tensor_files/safetensors.h"
#include "ddp/group/process_group.h"

typedef struct Profile Profile; // the trainer's, for --profile; other programs pass NULL

typedef enum FsdpReshard {
    FSDP_RESHARD_DEFAULT, // all units but the root (PyTorch's None)
    FSDP_RESHARD_NEVER,   // weights stay whole until the unit's backward: fewer bytes moved
    FSDP_RESHARD_ALWAYS,
} FsdpReshard;

// A unit has the config of its call, except overlap and unshard_in_step, which are the root's.
typedef struct FsdpConfig {
    Device *device; // of the shards; NULL: the module's own
    FsdpReshard reshard_after_forward;
    // PRECISION_BF16 or _F16: linear and convolution weights, which autocast rounds to this
    // precision, are gathered in it, for half the bytes.
    Precision precision;
    bool overlap;
    // A step of an optimizer with fsdp_sharding starts the next forward's first gathers, the root's
    // and the first unit's, when it has updated these two. PyTorch: unshard(async_op=True) of both
    // after the step. From the step to that forward nothing else may write weights.
    bool unshard_in_step;
    bool global_normalization; // gradients are summed, not averaged (DdpConfig)
} FsdpConfig;

FsdpConfig fsdp_config_default(void);

// Makes the module a unit, in place. Collective: all ranks call it for the same modules in the same
// order. A module on a device without memory ("dry-cpu") gets shards with undefined contents on
// config->device: the whole model never exists, and model_initialize fills the shards. Otherwise a
// shard is cut out of the parameter, and the module's memory is freed; rank 0's weights are not
// broadcast.
//
// Returns 0, or -1 with err filled, the module unchanged: a module without forward of its own (its
// parent runs its children), one that is a unit already or is inside of one, a scalar parameter, or
// ranks whose units differ, which is an error on every rank that names the first differing
// parameter.
int fully_shard(Module *module, ProcessGroup *group, const FsdpConfig *config, Error *err);

// Completes a backward: reduces the gradients of units that backward could not (their inputs need
// no gradient), waits for all reductions, and frees all whole weights. On return every parameter is
// sharded and has this rank's shard of the reduced gradient. To be called after each tape_backward,
// before clipping and the optimizer. Collective. 0, or -1 with err filled.
int fsdp_finish_backward(Module *root, Profile *profile, Error *err);

// PyTorch's set_requires_gradient_sync(false) (no_sync): backwards keep each unit's whole gradient
// on this rank, undivided, until a backward under `true` adds its own and reduces the sum. Returns
// the value before.
bool fsdp_set_requires_gradient_sync(Module *root, bool sync);

// For OptimizerConfig.sharding: grad_clip then adds up the lengths of all ranks' shards. After a
// failure there, the next forward returns the error. The root owns it.
OptimizerSharding *fsdp_sharding(Module *root);

// Broadcasts rank 0's buffers. Collective. 0, or -1 with err filled.
int fsdp_sync_buffers(Module *root, Error *err);

// Collects whole tensors on rank 0 in host memory, tensor by tensor, for checkpoints. *content
// receives them (safetensors_free), on other ranks none:
//
//     FSDP_STATE       "model/NAME" and, unless optimizer is NULL, "optimizer/NAME.STATE"
//     FSDP_GRADIENTS   "model/NAME": the defined gradients
//
// Precondition: every parameter is sharded. Collective. 0, or -1 with err filled.
typedef enum FsdpCollected { FSDP_STATE, FSDP_GRADIENTS } FsdpCollected;
int fsdp_collect(Module *root, FsdpCollected what, const Optimizer *optimizer, SafeTensors *content,
                 Error *err);

ProcessGroup *fsdp_group(Module *root);

#endif
