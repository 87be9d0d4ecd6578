/* own_dp.h: the contract of a DataParallel of your own, which train_dp runs in the place of the
 * built-in one: train_dp --wrapper FILE.
 *
 * FILE is C source, compiled by the trainer, or a shared object. It defines one table:
 *
 *     #include "dp/own/own_dp.h"
 *     const OwnDp own_dp = {OWN_DP_VERSION, open, forward, close};
 *
 * One process has all devices. The model, the loss and the optimizer are on devices[0]; the trainer
 * calls `forward` in the place of the model's forward, in training and in evaluation, then computes
 * the loss of its output, and runs tape_backward. A forward has five parts:
 *
 *     scatter         cut x into chunks of ceil(rows / count) rows, device by device; a small batch
 *                     leaves the last devices without rows, and then without work
 *     replicate       copy the parameters and buffers to the devices that have rows
 *     parallel apply  run each replica on its rows, all at the same time: device_submit runs a
 *                     function on a device's own thread, device_wait waits for it (an hour is long
 *                     enough for any step)
 *     gather          copy the outputs to devices[0], one after another in the devices' order
 *     reduce          in backward: add the replicas' gradients to the model's, in the order of the
 *                     devices, ((g0 + g1) + g2) + ...
 *
 * Backward: the tape of the argument is devices[0]'s. tape_fork gives a tape on another device, and
 * each replica's forward records on its own fork. tape_record puts one node on the main tape, whose
 * output is the gathered tensor and whose inputs are the model's parameters (and x if it
 * requires a gradient). The node's backward function gets the gradient of the gathered output:
 * it copies each device's rows to that replica's output (tape_make_grad), runs tape_backward on the
 * forks, on the devices' threads again, and then, for each parameter, adds the replicas' gradients
 * to the memory that tape_grad returns and calls tape_grad_done. If the tape is not recording
 * (evaluation), tape_record records nothing.
 *
 * What must hold:
 *   - module_replica builds a replica's tree once; each forward sets its tensors' data. Replica 0
 *     is one, too, whose tensors point to the model's data: batch norm's running statistics of
 *     device 0 stay, those of other devices are lost (PyTorch's rule).
 *   - a replica's gradient (has_grad false before each forward) is in the memory that its tensor's
 *     grad points to; if grad is NULL, in memory of its fork, for this step.
 *   - a parameter that does not require a gradient has none in the replicas either. A parameter
 *     that no replica has a gradient of gets none: call tape_grad_done without tape_grad.
 *     device_kernels(device)->elementwise->accumulate adds (device/kernels.h).
 *   - memory of a device is accessed by its thread, or copied by device_copy. Memory of one forward
 *     comes from tape_alloc (host), tape_memory and tape_tensor (the tape's device): it is released
 *     by the tape's reset after the step, so that a step allocates nothing.
 *   - x is a tensor on devices[0] whose first dimension is the rows; its type is F32, or I64 for
 *     tokens. An output may have more rows than x (gpt: one per token), the same number for each
 *     row of x.
 *
 * Errors: open returns NULL with err filled, forward NULL with the error on the tape (tape_fail).
 * In a backward function tape_fail does the same. The training ends with that sentence.
 *
 * Functions to use: those of device/device.h, nn/module.h, nn/tape.h, nn/tensor.h and the other
 * public headers of common, and the C library. The built-in wrapper's (dp/data_parallel.h) are
 * refused when the file is loaded.
 */
#ifndef DP_OWN_OWN_DP_H
#define DP_OWN_OWN_DP_H

#include "common/nn/module.h"
#include "common/nn/tape.h"

enum { OWN_DP_VERSION = 1 };

typedef struct OwnDp {
    int version; // OWN_DP_VERSION
    // Returns the wrapper's state, which the other functions get as `self`, or NULL with err
    // filled. The model stays the trainer's; all its tensors are on devices[0]. devices[count] are
    // different and valid until close; the array is not.
    void *(*open)(Module *model, Device *const *devices, int count, Error *err);
    // Returns the model's output for x[rows, ...], on devices[0], or NULL with the error on the
    // tape.
    Tensor *(*forward)(void *self, Tape *tape, Tensor *x);
    void (*close)(void *self); // frees the state
} OwnDp;

extern const OwnDp own_dp; // the file's

#endif
