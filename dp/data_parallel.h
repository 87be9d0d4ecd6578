/* data_parallel.h: PyTorch's DataParallel: one process, one thread per device.
 *
 * Every forward scatters the batch over the devices, copies the module to each of them (replicate),
 * runs the replicas in parallel, and gathers their outputs on the first device. These four steps
 * are operations on the tape, and backward runs their backwards in reverse order:
 *
 *      forward            backward
 *      scatter            gather the shards' input gradients
 *      replicate          reduce: add the replicas' gradients
 *      parallel_apply     run the replicas' tapes backward
 *      gather             scatter the output's gradient
 *
 * The loss, the optimizer and the parameters' memory stay on the first device.
 *
 * As in PyTorch (torch/nn/parallel/data_parallel.py): a batch of B rows is cut into chunks of
 * ceil(B/N), so a small batch leaves the last devices idle; replica 0 *is* the module, so its batch
 * norms' running statistics persist, and the other replicas' are lost; gradients are summed in
 * device order; the lowest replica's error is reported.
 *
 * A module with several inputs or outputs takes or returns a tuple (nn/tuple.h), whose tensors are
 * cut, or joined. A call with an empty tuple runs on the first device. The wrapped module is the
 * wrapper's only child (PyTorch's `.module`).
 *
 * Differences from PyTorch:
 *
 *                                  here                           PyTorch
 *   CPU devices                    run in parallel                the module is called directly
 *   inputs of different sizes      an error                       the surplus is silently dropped
 *   weights and gradients          copied, one device at a time   NCCL's broadcast and reduce, with
 *                                                                 its order of sums, if available
 *   a DataParallel inside another  rejected when it is wrapped    fails in the first forward
 *   one GPU given twice            allowed, as two Devices, so    rejected
 *                                  that one card is enough
 */
#ifndef DP_DATA_PARALLEL_H
#define DP_DATA_PARALLEL_H

#include "common/nn/module.h"

typedef struct Trace Trace; // the trainer's, for --trace

enum { DP_MAX_DEVICES = 64 }; // in one process

// Returns the wrapper of a module (a model, or a part of one) whose tensors are all on devices[0].
// Takes the module, not the devices. With one device the wrapper calls the module directly. NULL
// with err filled if a tensor is on another device (PyTorch's text), if a device is given twice (on
// GPUs: the same Device), or if a part of the module cannot be replicated; the module then stays
// the caller's.
Module *data_parallel(Module *module, Device *const *devices, int device_count, Error *err);

// Sets the dimension along which inputs are cut and outputs joined; the default is 0. With another,
// a shard's rows are not contiguous: one copy per leading index, on the first device too.
void data_parallel_set_dim(Module *wrapper, int dim);

// Joins the outputs on another device than the first: PyTorch's output_device; without effect for a
// wrapper of one device. Operations on the outputs then run on that device. A tape has one device,
// so they need another tape, and backward is two calls:
//      Tape *after = tape_fork(tape, device);   loss on `after` from the outputs y;
//      tape_backward(after, loss, &err);        tape_backward(tape, y, &err);
void data_parallel_set_output_device(Module *wrapper, Device *device);

// Adds one track per device to the trace: the replica's forward and backward.
void data_parallel_set_trace(Module *wrapper, Trace *trace);

#endif
