/* zero_optimizer.h: ZeRO stage 1 (Rajbhandari et al. 2020; DeepSpeed): the optimizer's state and
 * its step are divided over the ranks.
 *
 * Each rank owns a contiguous part of every bucket: it alone keeps the optimizer's state of those
 * elements and steps them; the others receive the new weights from it.
 *
 *     DDP      all gradients   ---> all of the state, the whole step
 *     ZeRO-1   sum of own part ---> own part's state, own part's step ---> all weights
 *              reduce_scatter                                              all_gather
 *
 *                              DDP   ZeRO-1                 PyTorch's ZeroRedundancyOptimizer
 *   bytes moved per step       1     1 (1.5 with "whole")   1.5: all-reduce, then broadcasts
 *   bytes per parameter,
 *     AdamW                    16    8 + 8/W
 *     SGD with momentum        12    8 + 4/W
 *
 * An all-reduce is a reduce_scatter followed by an all_gather; here the all_gather moves weights
 * instead of gradients, hence the same bytes.
 *
 * A step has three forms, by the memory that the ranks can address:
 *
 *   fused      Ranks of one host (shm) address each other's memory. After backward each rank
 *              handles its part in one pass: sum all ranks' gradients, step, write the new weights
 *              to all ranks. The sum is never stored.
 *   scattered  Otherwise (mpi, nccl, an emulated link; clipping, which reads the sums before the
 *              step) each bucket is reduce_scattered as soon as it is full, during backward. Each
 *              rank steps its part; then it writes the weights to all ranks, or each bucket's
 *              weights are all_gathered.
 *   whole      If the whole gradient is needed before the step (--amp fp16 looks for inf in it,
 *              --dump-grads writes it; a policy may find parameters unused), buckets are
 *              all-reduced as in DDP, and only the step is divided.
 *
 * Clipping adds 12 integers per step over the ranks (clip.h).
 *
 * Memory: the weights are moved into memory of the group, in the order and with the padding of the
 * gradients in the buckets, so that other ranks can write them and a bucket is gathered in place.
 *
 * Synchronisation: a linear layer reads its weight after that weight's gradient is ready, so
 * weights must not change before the end of backward. The fused pass therefore has a barrier before
 * it, after all ranks' backward, and another after it, before any rank's next forward.
 *
 * The all_gather does not overlap the next forward. Every reader of a weight would have to wait for
 * its bucket, and readers have no common entry: each layer reads its own, a GPT looks up two
 * tables, evaluation and checkpoints bypass the wrapper. And forward first reads the bucket that
 * was full last: in GPT-2 the tied embedding, a third of all bytes.
 *
 * Bits: on the CPU the weights equal DDP's bit for bit, for every world size, bucket size and way:
 * each element is summed in rank order and stepped once by the same formula. Checkpoints are DDP's:
 * rank 0 gathers the state, and a run with another number of ranks, with or without ZeRO, resumes
 * it.
 *
 * Restrictions: buckets are never rebuilt, because the state belongs to positions in them. After a
 * step that was not "whole" the gradients are None. A "scattered" backward divides the gradients
 * over the ranks, so no further backward can add to them: a forward that is reduced, without a step
 * or zero_grad since, is an error. Micro-batches accumulate under no_sync. Not together with
 * another communication hook (which owns the buckets), Join (which cannot mirror the step) or
 * static_graph (which rebuilds the buckets).
 */
#ifndef DDP_FEATURES_ZERO_OPTIMIZER_H
#define DDP_FEATURES_ZERO_OPTIMIZER_H

#include "common/nn/optimizer.h"
#include "ddp/comm_hook.h"

typedef struct ZeroConfig {
    bool apart; // always "scattered" instead of "fused"
} ZeroConfig;

// Divides the wrapped model's optimizer. 0, or -1 with err filled. Collective. Call it before the
// first forward and before the optimizer is created with zero_optimizer_sharding.
int ddp_zero_optimizer(Module *wrapper, const ZeroConfig *config, Error *err);

// For OptimizerConfig.sharding; after a step that failed, the module's weights are undefined once
// the wrapper is closed. The wrapper owns it and must outlive the optimizer's last step.
OptimizerSharding *zero_optimizer_sharding(Module *wrapper);

#endif
