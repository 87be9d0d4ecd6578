/* optimizer_hook.h: the optimizer's step inside the communication hook (PyTorch's
 * _hook_then_optimizer): a bucket's parameters are updated as soon as its gradients are reduced,
 * while later buckets are in flight. Afterwards their gradients are None, so the ordinary
 * step after backward skips them.
 */
#ifndef DDP_FEATURES_OPTIMIZER_HOOK_H
#define DDP_FEATURES_OPTIMIZER_HOOK_H

#include "common/nn/optimizer.h"
#include "ddp/comm_hook.h"

// Wraps another hook, which it takes; the optimizer stays the caller's. *lr is read at every step.
CommHook optimizer_hook(CommHook inner, Optimizer *optimizer, const double *lr);

#endif
