/* batch_loss.c: input, forward, loss. */
#include "common/train/batch_loss.h"

static Tensor *batch_input(Tape *tape, const Batch *batch) {
    const size_t *sample = batch->set->shape;
    return tape_input(tape, DTYPE_F32, 4, (size_t[]){batch->count, sample[0], sample[1], sample[2]},
                      batch->samples);
}

// Finds the divisor of a mean over `count` samples or pixels of this rank. `global` is all ranks'
// number, 0 if it is not known yet.
static int find_divisor(BatchLoss *result, const Tape *tape, size_t global, Strategy *strategy,
                        Error *err) {
    double all = (double)(global ? global : result->count);
    if (strategy && !global && strategy->global_mean) {
        Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
        int failed = strategy->reduce(strategy, &all, 1, err);
        profile_leave(tape->profile, phase);
        if (failed) return -1;
    }
    result->divisor = strategy ? strategy->loss_rows(strategy, result->count, (size_t)all)
                               : (double)result->count;
    return 0;
}

static int pixel_loss(BatchLoss *result, Tape *tape, const Batch *batch, const Mining *mining,
                      Strategy *strategy, Error *err) {
    const size_t *sample = batch->set->shape;
    result->target = tape_input(tape, DTYPE_I64, 3, (size_t[]){batch->count, sample[1], sample[2]},
                                batch->labels);
    Tensor *sum =
        op_pixel_cross_entropy(tape, result->outputs, result->target, mining, &result->count);
    if (tape_error(tape, err) != 0 || find_divisor(result, tape, 0, strategy, err) != 0) return -1;
    result->loss = op_divide(tape, sum, result->divisor);
    return 0;
}

static int sample_loss(BatchLoss *result, Tape *tape, const Batch *batch, Strategy *strategy,
                       Error *err) {
    result->count = batch->count;
    if (find_divisor(result, tape, batch->global_count, strategy, err) != 0) return -1;
    if (batch->labels) {
        result->target = tape_input(tape, DTYPE_I64, 1, &batch->count, batch->labels);
        result->loss = op_cross_entropy(tape, result->outputs, result->target, result->divisor);
    } else {
        size_t size = batch->set->target_size;
        result->target =
            tape_input(tape, DTYPE_F32, 2, (size_t[]){batch->count, size}, batch->targets);
        result->loss =
            op_squared_error(tape, result->outputs, result->target, result->divisor * (double)size);
    }
    return 0;
}

int batch_loss(BatchLoss *result, Tape *tape, Module *module, const Batch *batch,
               const Mining *mining, Strategy *strategy, Error *err) {
    *result = (BatchLoss){0};
    Phase phase = profile_enter(tape->profile, PHASE_DATA);
    Tensor *x = batch_input(tape, batch);
    profile_enter(tape->profile, PHASE_FORWARD);
    result->outputs = module_forward(module, tape, x);
    profile_enter(tape->profile, PHASE_LOSS);
    int failed = batch->set->dense ? pixel_loss(result, tape, batch, mining, strategy, err)
                                   : sample_loss(result, tape, batch, strategy, err);
    profile_leave(tape->profile, phase);
    return failed ? -1 : tape_error(tape, err);
}

double batch_loss_sum(const BatchLoss *result) {
    return (double)tensor_item(result->loss) * result->divisor;
}
