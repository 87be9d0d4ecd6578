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
 * gradients are summed in device order; the lowest replica's error is the one reported. Unlike
 * PyTorch: a DataParallel on CPU devices is real, not a pass-through, and only dimension 0 is cut.
 */
#ifndef DP_DATA_PARALLEL_H
#define DP_DATA_PARALLEL_H

#include "common/base/trace.h"
#include "common/nn/module.h"
#include "common/train/strategy.h"

enum { DP_MAX_DEVICES = 64 }; // in one process

// Wraps a module (a whole model, or a part of one) whose tensors are all on devices[0]. Takes the
// module, not the devices. With one device the module is called directly. NULL with err filled if
// a tensor is elsewhere (PyTorch's text) or if a device is given twice; the module then stays the
// caller's.
Module *data_parallel(Module *module, Device *const *devices, int device_count, Error *err);

// One track per device for the replicas' forward and backward.
void data_parallel_set_trace(Module *wrapper, Trace *trace);

// The Strategy for the trainer. Owns everything it is given from now on.
Strategy *strategy_dp(Module *model, Module *wrapper, Device *const *devices, int device_count);

// The devices that --devices N or, if it is not NULL, --device-ids 0,2 asks for. Fills ids
// [DP_MAX_DEVICES] and returns how many there are, or -1 with err filled.
int strategy_dp_device_ids(int devices, const char *list, int *ids, Error *err);

#endif
