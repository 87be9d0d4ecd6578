/* comm_hooks.h: communication hooks: what is done with a full bucket instead of an all-reduce
 * (PyTorch's torch.distributed.algorithms.ddp_comm_hooks).
 *
 * A hook owns the averaging: what it leaves in the bucket is the gradient. It may wrap another one:
 * then it does something to the bucket before that one starts or after it finishes. Every rank must
 * register the same (ddp_register_comm_hook). Larger hooks are in files of their own.
 */
#ifndef DDP_FEATURES_COMM_HOOKS_H
#define DDP_FEATURES_COMM_HOOKS_H

#include "ddp/reducer.h"

// Makes the gradient the sum over the ranks, times 1/W for averages. PyTorch divides first; the
// order here keeps the bits of training without a hook.
CommHook comm_hook_all_reduce(ProcessGroup *group);

// No communication: each rank keeps its own gradient. Training is wrong, and as fast as with a
// network that costs nothing: the bound for everything else.
CommHook comm_hook_noop(void);

// Gradients travel in 16 bits: they are rounded, divided by W (for averages), summed in rank order
// with a rounding each time, and made floats again. Dividing first keeps sums within the range of
// fp16. type: PG_F16 or PG_BF16.
CommHook comm_hook_compress(ProcessGroup *group, PgType type);

// Wraps another hook, which it takes: rounds what goes in and what comes out to 16 bits. PyTorch's
// wrappers hand the inner hook a tensor of 16 bits; here it gets floats that fit into 16.
CommHook comm_hook_round(CommHook inner, PgType type);

// Calls then(context, bucket) after the inner hook (taken), as if chained to PyTorch's future.
typedef void CommThen(void *context, GradBucket *bucket);
CommHook comm_hook_then(CommHook inner, CommThen *then, void *context);

#endif
