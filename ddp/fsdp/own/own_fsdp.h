/* own_fsdp.h: the contract of a fully sharded data parallel of your own, which train_fsdp runs in
 * the place of the built-in one: train_fsdp --wrapper FILE.
 *
 * FILE is C source, compiled by the trainer, or a shared object. It defines one table:
 *
 *     #include "ddp/fsdp/own/own_fsdp.h"
 *     const OwnFsdp own_fsdp = {OWN_FSDP_VERSION, open,           before_forward,  after_forward,
 *                               before_backward,  after_backward, finish_backward, close};
 *
 * One process runs per rank, each with its own share of every batch. The model is divided into
 * *units* (train_fsdp --units): its blocks or layers, and last the root, which has the parameters
 * that no other unit has. Each rank keeps 1/W of each parameter. The whole parameters of a unit
 * exist only while the unit computes. The trainer calls, on every rank in the same order and in one
 * thread:
 *
 *     open                       once: each rank has a whole model, with weights of its own
 *     for each step:
 *         forward of each unit   before_forward, the unit computes, after_forward
 *         backward of each unit  before_backward, the unit computes, after_backward
 *         finish_backward        then the optimizer updates each rank's shards by their gradients
 *     close                      once, after the last step
 *
 * The root's before_forward is the first of a forward and its after_forward the last; likewise in
 * backward. The other units run between, one at a time, in the model's order, and backward in the
 * reverse order. An evaluation is a forward without backward. A unit may run several times in a
 * forward. A unit that a forward does not use is not called, nor is one without parameters, except
 * the root.
 *
 * With --accumulate-steps K a step has K forwards and backwards, of the same units. `complete` is
 * false in the first K - 1, and finish_backward follows the last alone: the gradients are the sums
 * over the K backwards, reduced once.
 *
 * A parameter is in one of two states:
 *
 *                      sharded                                  whole
 *     when             between steps, and while its unit does   from before_* to after_*
 *                      not compute
 *     shape[0]         the shard's rows, which may be 0         the rows of the whole
 *     data             the shard                                the whole, in row order
 *     shard            {first row, rows of the whole}           NULL
 *     grad             the shard's gradient                     in backward: the whole gradient
 *     has_grad         after finish_backward: it is defined     in backward: it is defined
 *
 * The shards are torch.chunk's along dim 0: with c = ceil(n / W), rank r has the rows from r c to
 * min((r + 1) c, n); the last ranks may have fewer rows, or none. Every parameter has at least one
 * dimension and is float32. Pieces of equal size on all ranks, as pg_all_gather and
 * pg_reduce_scatter need them, have c rows: those beyond n are padding.
 *
 * What must hold:
 *   - open: every parameter is sharded, with the rows of rank 0's weights. module_release_grads and
 *     module_release_data free the whole model's memory: they take `model` and a unit's list.
 *   - before_forward, before_backward: the unit's parameters are whole. In before_backward set grad
 *     of each parameter with requires_grad to memory for the whole gradient, and has_grad to false;
 *     backward then writes it.
 *   - after_forward: the unit is sharded. The root alone may stay whole if `backward_follows`.
 *   - after_backward: the unit is sharded. If `complete`, its gradients are reduced: combined over
 *     the ranks by `op`, PG_AVG or PG_SUM, each rank keeps its rows. Otherwise another run of the
 *     unit, in this backward or in a later one of the step, still adds to them: keep the whole
 *     gradients, and show them again, with their has_grad, in the next before_backward of the unit.
 *   - finish_backward: every parameter is sharded and its gradient has arrived, with the same bits
 *     as from one pg_reduce_scatter of the whole gradient.
 *   - A parameter without requires_grad is sharded and gathered like the others and has no
 *     gradient: grad is NULL. One whose has_grad is false after its unit's backward was not used:
 *     its shard has no gradient either. Both are the same parameters on all ranks.
 *
 * Memory: besides the shards, at most the weights and gradients of the root and of two other units
 * exist at any time after open, padding and buffers of collectives included (gradients that are
 * kept because `complete` was false come besides):
 *
 *     bytes <= 2 shards + 2 root + 4 largest unit   (each: the bytes of its weights, with padding)
 *
 * device_alloc counts a device's memory, pg_shared_alloc the group's (PgTotals.shared_bytes; it is
 * never freed, and collectives in it copy less). Other memory is for lists and names only.
 *
 * Traffic: a step gathers each unit twice and reduces it once: 1.5 times the bytes of
 * DistributedDataParallel's all-reduce. The root is gathered once if it stays whole. With
 * --accumulate-steps K the gathers are K times as many, and the reductions are not.
 *
 * For speed, the next unit's gather is started (pg_start) before this unit computes, and the
 * reduction of a unit runs while the next one computes. All ranks must start the same collectives
 * in the same order. The buffers of a started collective are the group's until pg_work_wait.
 * pg_of_bucket marks a collective as that of a unit, for traces.
 *
 * Not yours: buffers (batch norm) stay each rank's own and are broadcast by the trainer before an
 * evaluation. The optimizer, clipping and checkpoints read the shards.
 *
 * Errors: each function returns 0, or -1 after error_set(err, STATUS_FAILED, "..."); open returns
 * NULL. An error ends the training on all ranks with that sentence.
 *
 * Functions to use: those of device/device.h, nn/module.h, nn/tensor.h, group/process_group.h,
 * group/collective.h and the other public headers, and the C library. The built-in wrapper's
 * functions (ddp/fsdp/fully_shard.h) are refused when the file is loaded.
 */
#ifndef DDP_FSDP_OWN_OWN_FSDP_H
#define DDP_FSDP_OWN_OWN_FSDP_H

#include "common/nn/module.h"
#include "ddp/group/process_group.h"

enum { OWN_FSDP_VERSION = 1 };

typedef struct OwnFsdpUnit {
    const char *name;        // its module's type and number, for messages: "Block 2"
    NamedTensors parameters; // by their names in the model; each tensor is in one unit only
} OwnFsdpUnit;

typedef struct OwnFsdp {
    int version; // OWN_FSDP_VERSION
    // Collective. Returns the wrapper's state, which the other functions get as `self`, or NULL
    // with err filled. units[count], valid until close: in the model's order, the root last. The
    // model is on one device. op: how gradients are combined, PG_AVG or with --normalize global
    // PG_SUM.
    void *(*open)(Module *model, const OwnFsdpUnit *units, size_t count, ProcessGroup *group,
                  ReduceOp op, Error *err);
    // Around each run of units[unit]. On return its parameters are whole; sharded.
    int (*before_forward)(void *self, size_t unit, Error *err);
    int (*after_forward)(void *self, size_t unit, bool backward_follows, Error *err);
    // Around each backward of units[unit]. complete: no other run of it, in this backward or in a
    // later one of the step, is still to add gradients.
    int (*before_backward)(void *self, size_t unit, Error *err);
    int (*after_backward)(void *self, size_t unit, bool complete, Error *err);
    // After a backward. On return every parameter is sharded and its gradient reduced.
    int (*finish_backward)(void *self, Error *err);
    // Frees the state and the shards; data and grad of the parameters become NULL. Also called
    // after an error of the functions above, except open's: a collective may be outstanding then,
    // whose buffers are the group's until pg_work_wait.
    void (*close)(void *self);
} OwnFsdp;

extern const OwnFsdp own_fsdp; // the file's

#endif
