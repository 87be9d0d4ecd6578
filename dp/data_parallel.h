/* data_parallel.h: PyTorch's DataParallel: one process, one thread per device.
 *
 * Every forward scatters the batch over the devices, copies the module to each of them (replicate),
 * runs the replicas in parallel, and gathers their outputs on the first device. These four steps
 * are operations on the tape, so that backward is simply each one's own, in reverse:
 *
 *      forward            backward
 *      scatter            gather the pieces' input gradients     dp/scatter.c
 *      replicate          reduce: add the replicas' gradients    dp/replicate.c
 *      parallel_apply     run the replicas' tapes backward       dp/parallel_apply.c
 *      gather             scatter the output's gradient          dp/gather.c
 *
 * The loss and the optimizer stay on the first device and see one true copy of the parameters.
 *
 * As in PyTorch (torch/nn/parallel/data_parallel.py): a batch of B rows is cut into chunks of
 * ceil(B/N), so a small one leaves the last devices idle; replica 0 *is* the module, so what its
 * batch norms write to their buffers stays, and the other replicas' running statistics are lost;
 * gradients are summed in device order; the lowest replica's error is the one reported.
 *
 * A module that takes or returns several tensors takes or returns a tuple (nn/tuple.h): every
 * tensor in it is cut, or joined. A tuple of no items is a call without arguments: it runs on the
 * first device. The wrapped module is the wrapper's only child (PyTorch's `.module`).
 *
 * Unlike PyTorch: a DataParallel on CPU devices is real, not a pass-through; inputs of different
 * batch sizes are an error, where PyTorch drops the surplus in silence; a DataParallel inside one
 * over several devices is refused when it is wrapped, not in the first forward; one GPU may be
 * given twice, as two Devices ("cuda:0" and "cuda:0"), which PyTorch refuses: it is the way to run
 * the algorithm on one card. Every row of PyTorch's own tests: tests/semantics.md.
 */
#ifndef DP_DATA_PARALLEL_H
#define DP_DATA_PARALLEL_H

#include "common/base/trace.h"
#include "common/nn/module.h"

enum { DP_MAX_DEVICES = 64 }; // in one process

// Wraps a module (a whole model, or a part of one) whose tensors are all on devices[0]. Takes the
// module, not the devices. With one device the module is called directly. NULL with err filled if
// a tensor is elsewhere (PyTorch's text), if a device is given twice (on GPUs: the same Device), or
// if a part of the module cannot be replicated; the module then stays the caller's.
Module *data_parallel(Module *module, Device *const *devices, int device_count, Error *err);

// Cuts inputs and joins outputs along another dimension than 0. Then a tensor's rows no longer lie
// together, and a piece is a copy per leading index, on the first device too.
void data_parallel_set_dim(Module *wrapper, int dim);

// Joins the outputs on another device than the first: PyTorch's output_device, which has no effect
// with one device. What is computed from the outputs then lies on that device, too. As a tape has
// one device, that takes a tape of its own, and backward is two calls:
//      Tape *after = tape_fork(tape, device);   loss on `after` from the outputs y;
//      tape_backward(after, loss, &err);        tape_backward_from(tape, y, &err);
void data_parallel_set_output_device(Module *wrapper, Device *device);

// One track per device for the replicas' forward and backward.
void data_parallel_set_trace(Module *wrapper, Trace *trace);

#endif
