/* join_ddp.h: a wrapped model in a Join.
 *
 * Collectives of an iteration, in this order on every rank: how many train (join_notify); whose
 * buffers count (the highest rank that trains) and whether anyone will reduce; new buckets, once;
 * the buffers; the buckets, through the communication hook; the used map. A joined rank contributes
 * zeros, and its own gradients are None afterwards (PyTorch leaves them as they were). At the end
 * the highest of the ranks that trained longest broadcasts parameters and buffers.
 */
#ifndef DDP_FEATURES_JOIN_DDP_H
#define DDP_FEATURES_JOIN_DDP_H

#include "common/nn/module.h"
#include "ddp/features/join.h"

Joinable ddp_joinable(Module *wrapper);

#endif
