/* comm_hooks.h: communication hooks: replacements of the all-reduce of a full bucket (PyTorch's
 * torch.distributed.algorithms.ddp_comm_hooks).
 *
 * A hook owns the averaging: its result in the bucket is the gradient. A wrapper changes the bucket
 * before its inner hook starts or after it finishes, and owns the inner hook. All ranks must
 * register the same hook (ddp_register_comm_hook). Larger hooks have files of their own.
 */
#ifndef DDP_FEATURES_COMM_HOOKS_H
#define DDP_FEATURES_COMM_HOOKS_H

#include "ddp/comm_hook.h"

// The sum over the ranks, then times 1/W for averages: the same bits as without a hook. (PyTorch
// divides first.)
CommHook comm_hook_all_reduce(ProcessGroup *group);

// No communication: each rank keeps its own gradient. Training is wrong; its speed is the upper
// bound of any communication.
CommHook comm_hook_noop(void);

// All-reduce in 16 bits, type PG_F16 or PG_BF16: gradients are rounded, divided by W (for
// averages), summed in rank order with a rounding after each addition, and widened. Division first
// keeps the sums in fp16's range.
CommHook comm_hook_compress(ProcessGroup *group, PgType type);

// Rounds the inner hook's input and output to 16 bits. The inner hook gets floats with values of 16
// bits; PyTorch's gets a tensor of 16 bits.
CommHook comm_hook_round(CommHook inner, PgType type);

// Calls then(context, bucket) after the inner hook has finished: PyTorch's future.then.
typedef void CommThen(void *context, GradBucket *bucket);
CommHook comm_hook_then(CommHook inner, CommThen *then, void *context);

#endif
