/* sync_batch_norm.h: batch norm over the batches of all ranks together (PyTorch's SyncBatchNorm).
 *
 * In training, ranks that hold b_0, b_1, ... rows compute what one device would compute with all
 * of them: outputs, running statistics (the same bits on every rank) and input gradients. Each
 * layer costs two collectives: one all-gather of 2c + 1 numbers in forward, one all-reduce of 2c in
 * backward. A rank without rows takes part in both. In evaluation, and alone, a layer is an
 * ordinary batch norm.
 *
 * The backward all-reduce sums dy over the ranks. So gradients equal those of one device if the
 * losses add up to its loss: divide each by the global batch and sum the gradients (DDP's global
 * normalisation), or scale local means by W b_r / B and average (PyTorch's rule).
 *
 * These collectives block in the middle of forward and backward, while the Reducer's run beside
 * backward. They have a group of their own, a copy of the group they are made for, for two reasons.
 * Order: all ranks must issue a group's collectives in the same order, but where in backward a
 * bucket is complete may differ from rank to rank if their graphs do; only the order of the layers
 * among themselves is the same. And time: in the Reducer's queue, a layer would wait for
 * all buckets before it, and backward with it.
 *
 * On GPUs that makes two communicators, whose collectives two threads launch in an arbitrary order.
 * This deadlocks if one blocks the other on the device, where a kernel waits for its predecessors
 * in the same hardware queue. There are 32 queues, or CUDA_DEVICE_MAX_CONNECTIONS; with fewer than
 * eight a second communicator is an error.
 *
 * Unlike PyTorch: one value per channel in all ranks together is an error, not a NaN.
 */
#ifndef DDP_FEATURES_SYNC_BATCH_NORM_H
#define DDP_FEATURES_SYNC_BATCH_NORM_H

#include "common/nn/module.h"
#include "ddp/group/process_group.h"

// Turns every BatchNorm of the tree into a SyncBatchNorm over the group's ranks, in place: tensors,
// names and thus checkpoints are unchanged. Call it before wrapping the model. Collective over the
// group, which may be a subgroup and is not needed afterwards. Returns the model, or NULL with err
// filled and the model unchanged.
Module *sync_batch_norm_convert(Module *model, ProcessGroup *group, Error *err);

#endif
