/* step_accumulated.c: gradient accumulation (--accumulate-steps K): a step in K micro-batches of
 * 1/K of the batch's samples, so that K times as many samples fit into a device's memory.
 *
 *     gradients     accumulate; only the last backward reduces them over the ranks (no_sync)
 *     loss          mean over the whole batch, as in PyTorch programs that divide each loss by K
 *     batch norm    statistics of each micro-batch, as in PyTorch
 *
 * Rounding differs from the plain step's: without batch norm gradients agree to a few units of
 * float32's last place (1e-6 of the largest), also between DataParallel and
 * DistributedDataParallel.
 */
#include "common/nn/tape.h"
#include "common/train/step.h"

// Forward, loss and backward of one micro-batch; accumulates its gradients and its loss.
static int add_part(Step *step, Tape *tape, Error *err) {
    BatchLoss batch;
    if (batch_forward(&batch, tape, step->strategy->module, step->input, err) != 0 ||
        step_loss(step, tape, &batch, err) != 0 || tape_backward(tape, batch.root, err) != 0)
        return -1;
    device_kernels(tape->device)->elementwise->accumulate(step->total, tensor_f32(batch.loss), 1);
    return 0;
}

int step_run_accumulated(Step *step, Tape *tape, double lr, Error *err) {
    Strategy *strategy = step->strategy;
    size_t parts = step->config->accumulate_steps;
    module_zero_grad(strategy->model);
    device_kernels(tape->device)->elementwise->fill(step->total, 0.0f, 1);
    for (size_t i = 0; i < parts; i++) {
        bool last = i + 1 == parts;
        batch_input_select(step->input, i, parts);
        strategy->hold_gradients(strategy, !last);
        int failed = add_part(step, tape, err);
        if (!failed && last) failed = strategy->finish_backward(strategy, tape, err);
        strategy->hold_gradients(strategy, false);
        if (failed) return -1;
        tape_reset(tape);
    }
    if (step_optimize(step, tape, lr, err) != 0) return -1;
    step_done(step, step->total);
    return 0;
}
