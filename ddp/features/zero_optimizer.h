/* zero_optimizer.h: the optimizer's work and memory divided over the ranks: ZeRO, stage 1
 * (Rajbhandari et al. 2020), which PyTorch calls ZeroRedundancyOptimizer.
 *
 * In DistributedDataParallel every rank holds the same optimizer state and computes the same new
 * weights. That is W times the work and W times the memory for one result. Here a rank is in charge
 * of one part of every bucket: it alone keeps the state of those weights, it alone steps them, and
 * the others take the new weights from it.
 *
 *     DDP, every rank:     all gradients  --->  all the state, a whole step
 *     ZeRO-1, every rank:  sum of my part --->  my part's state, my part's step  --->  all weights
 *                          reduce_scatter                                              all_gather
 *
 * An all-reduce is a reduce_scatter and an all_gather, one after the other, so no more travels than
 * before: only what is gathered is weights, and not gradients. A parameter costs a rank 4 bytes of
 * weight, 4 of gradient and, with AdamW, 8/W of state, where DDP has 16. (SGD with momentum: 4/W.)
 *
 * How a step is carried out depends on what the ranks can reach:
 *
 *   fused      Ranks of one host (shm) see each other's memory. After backward each rank takes its
 *              part in one pass: add up all ranks' gradients, step, write the new weights to all
 *              ranks. The gradients' sum is never in memory.
 *   scattered  Otherwise (mpi, nccl, an emulated link) each bucket is reduce_scattered as soon as
 *              it is full, while backward goes on. Each rank steps its part, and each bucket's new
 *              weights are all_gathered.
 *   whole      If somebody must see the whole gradient before the step (--clip-grad-norm and fp16
 *              look at its length, --dump-grads writes it; a policy may find parameters unused),
 *              buckets are all-reduced as in DDP, and only the step is divided.
 *
 * The weights are moved into memory of the group, where they lie one after another as the gradients
 * do in the buckets. So other ranks can write there, and a bucket's weights are gathered in place.
 *
 * Weights may not change while a backward still reads them: a linear layer reads its weight after
 * that weight's gradient is ready. The fused pass writes to other ranks, so all meet first, when
 * all have ended their backward; and again afterwards, before anybody's next forward.
 *
 * The gathering is not hidden behind the next forward. Whoever reads a weight would have to wait
 * for its bucket first, and there is no one place where weights are read: a layer reads its own, a
 * GPT looks up both of its tables, an evaluation and a checkpoint go past the wrapper. And what the
 * forward reads first is the bucket that was full last: in GPT-2 the tied embedding, a third of all
 * bytes.
 *
 * On the CPU the weights are DDP's bit for bit, for every world size, bucket size and way: each
 * element is added up in rank order and stepped by the same formula once. Checkpoints are DDP's
 * own: rank 0 gathers the state, and a run on another number of ranks, with or without this, goes
 * on from it.
 *
 * Buckets are never rebuilt, because the state belongs to a place in them. After a step that was
 * not whole the gradients are None. It cannot be combined with another communication hook, which
 * would own the buckets, with Join, which could not mirror the step, or with static_graph, which
 * rebuilds the buckets.
 */
#ifndef DDP_FEATURES_ZERO_OPTIMIZER_H
#define DDP_FEATURES_ZERO_OPTIMIZER_H

#include "common/nn/optimizer.h"
#include "ddp/reducer.h"

typedef struct ZeroConfig {
    bool apart; // take the scattered way even where ranks can reach each other's memory
} ZeroConfig;

// Divides the wrapped model's optimizer, before the first forward and before the optimizer is made:
// that takes zero_optimizer_sharding. Collective. -1 with err filled.
int ddp_zero_optimizer(Module *wrapper, const ZeroConfig *config, Error *err);

// For OptimizerConfig.sharding. The wrapper must outlive the optimizer's last step.
OptimizerSharding *zero_optimizer_sharding(Module *wrapper);

#endif
