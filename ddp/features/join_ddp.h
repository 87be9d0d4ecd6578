/* join_ddp.h: a wrapped model in a Join.
 *
 * Collectives of an iteration, in this order on every rank:
 *
 *   join_notify          number of active ranks
 *   all-reduce           the highest active rank, whose buffers are broadcast; whether any rank's
 *                        backward is reduced
 *   ddp_begin_forward    order of the rebuilt buckets, once; buffers
 *   backward             buckets, through the communication hook; the used map
 *
 * A joined rank contributes zeros; its own gradients are None afterwards (PyTorch keeps them). At
 * the end, the highest of the ranks that trained longest broadcasts parameters and buffers.
 */
#ifndef DDP_FEATURES_JOIN_DDP_H
#define DDP_FEATURES_JOIN_DDP_H

#include "common/nn/module.h"
#include "ddp/features/join.h"

Joinable ddp_joinable(Module *wrapper);

#endif
