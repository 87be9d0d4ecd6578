/* own_ddp.h: the contract of a DistributedDataParallel of your own, which train_ddp runs in the
 * place of the built-in one: train_ddp --wrapper FILE.
 *
 * FILE is C source, compiled by the trainer, or a shared object. It defines one table:
 *
 *     #include "ddp/own/own_ddp.h"
 *     const OwnDdp own_ddp = {OWN_DDP_VERSION, open, before_forward, finish_backward, sync_buffers,
 *                             close};
 *
 * One process runs per rank, each with its own copy of the model and its own share of every batch.
 * The trainer calls, on every rank in the same order and in one thread:
 *
 *     open                 once, before the first step
 *     for each step:
 *         before_forward   then the model's forward, loss and backward, which calls the parameters'
 *                          on_ready (below)
 *         finish_backward  then the optimizer updates the parameters by their gradients
 *     sync_buffers         before an evaluation of the model
 *     close                once, after the last step
 *
 * With --accumulate-steps K a step is K times before_forward, forward and backward: the first K - 1
 * with `reduces` false, and finish_backward only after the last, whose gradients are the sum over
 * the K backwards.
 *
 * What must hold, so that all ranks keep the same weights:
 *   - open: all ranks continue with rank 0's parameters and buffers. Each rank begins with weights
 *     of its own.
 *   - finish_backward: every parameter's gradient is combined over the ranks by `op`, PG_AVG or
 *     PG_SUM, and has the same bits on every rank, infinity and NaN included. It is in
 *     tensor->grad, with has_grad set.
 *   - before_forward: batch norm's running statistics are rank 0's before the first forward and
 *     before each that follows a reduced backward (PyTorch's rule; more often is only slower).
 *
 * For speed, gradients are sent while backward still runs. When the last use of a parameter has
 * contributed to its gradient, the tape calls
 *
 *     parameter->on_ready(parameter->on_ready_context, parameter, err)
 *
 * in the thread that runs backward. `open` sets both fields, `close` sets on_ready to NULL.
 * Backward completes gradients from the last layer to the first. When all gradients of a bucket are
 * ready, pg_start starts its all-reduce on the communication thread, and finish_backward waits for
 * it by pg_work_wait. A bucket takes gradients until it has at least bucket_bytes. All ranks must
 * start the same collectives in the same order: start bucket 1 after bucket 0, though it may be
 * full earlier. pg_of_bucket marks a collective as that of a bucket, for traces.
 *
 * Special parameters: one that does not require a gradient (requires_grad) is never ready, but is
 * broadcast. A parameter that two layers share is one tensor, which module_tensors lists once, and
 * it is ready once. A parameter that the loss does not depend on is not ready in that backward: an
 * error that names it, from finish_backward, is PyTorch's default.
 *
 * Memory: the model and the group stay the trainer's. The gradients' memory is the model's, and may
 * be copied to a bucket and back. Or the buckets are the gradients' memory: module_release_grads
 * frees the model's, tensor->grad is set to an address in a bucket, and close allocates the model's
 * again by module_own_grads. pg_shared_alloc's memory belongs to the group and is never freed.
 * PG_U8 and tensor_bytes send a tensor of any type.
 *
 * Errors: each function returns 0, or -1 after error_set(err, STATUS_FAILED, "..."); open returns
 * NULL. An error ends the training on all ranks with that sentence. on_ready returns -1 likewise.
 *
 * Functions to use: those of device/device.h, nn/module.h, nn/tensor.h, group/process_group.h,
 * group/collective.h and the other public headers, and the C library. The built-in wrapper's
 * functions (ddp/distributed_data_parallel.h, ddp/comm_hook.h) are refused when the file is loaded.
 */
#ifndef DDP_OWN_OWN_DDP_H
#define DDP_OWN_OWN_DDP_H

#include "common/nn/module.h"
#include "ddp/group/process_group.h"

enum { OWN_DDP_VERSION = 1 };

typedef struct OwnDdp {
    int version; // OWN_DDP_VERSION
    // Collective. Returns the wrapper's state, which the other functions get as `self`, or NULL
    // with err filled. The model's parameters and buffers are on one device, a CPU device or a GPU
    // (--device). op: how gradients are combined, PG_AVG or with --normalize global PG_SUM.
    // bucket_bytes: --bucket-cap-mb in bytes; 0: every gradient alone.
    void *(*open)(Module *model, ProcessGroup *group, ReduceOp op, size_t bucket_bytes, Error *err);
    // Before each forward of training. reduces: finish_backward follows this backward. Otherwise
    // the gradients accumulate on this rank and are not sent.
    int (*before_forward)(void *self, bool reduces, Error *err);
    // After a backward of a forward that `reduces`. On return the gradients are reduced.
    int (*finish_backward)(void *self, Error *err);
    // Collective. On return all ranks have rank 0's buffers (running statistics).
    int (*sync_buffers)(void *self, Error *err);
    // Frees the state. Also called after an error of the functions above, except open's: a
    // collective may be outstanding then, whose buffer is the group's until pg_work_wait.
    void (*close)(void *self);
} OwnDdp;

extern const OwnDdp own_ddp; // the file's

#endif
