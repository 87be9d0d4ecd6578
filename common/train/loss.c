/* loss.c: the divisor of the mean, the four losses, the choice between them. */
#include "common/train/loss.h"

#include <math.h>

#include "common/base/profile.h"
#include "common/nn/ops.h"

// ---- the divisor --------------------------------------------------------------------------------

static bool is_over_all(const Strategy *strategy) {
    return strategy && strategy->global_mean;
}

// ---- the losses ---------------------------------------------------------------------------------

static Tensor *binary_cross_entropy(const Loss *loss, const BatchLoss *batch, Tape *tape) {
    if (!batch->outputs) return NULL; // the forward failed; the tape has the error
    size_t classes = batch->outputs->shape[1];
    Tensor *weight = tape_tensor(tape, DTYPE_F32, 1, &classes);
    device_kernels(tape->device)
        ->elementwise->fill(tensor_f32(weight), (float)loss->pos_weight, classes);
    return op_binary_cross_entropy(tape, batch->outputs, op_one_hot(tape, batch->target, classes),
                                   weight, batch->divisor * (double)classes);
}

// With micro-batches the loss is the mean of their means, because the whole batch's counted pixels
// are unknown at the first micro-batch. 0, or -1 with err filled.
static int pixel_cross_entropy(const Loss *loss, BatchLoss *batch, Tape *tape,
                               const BatchInput *input, Strategy *strategy, Error *err) {
    size_t parts = input->parts, pixels = batch->count;
    Mining mining = {.threshold = loss->threshold};
    if (loss->threshold > -INFINITY) mining.least = loss->least ? loss->least / parts : pixels / 16;
    Tensor *sum =
        op_pixel_cross_entropy(tape, batch->outputs, batch->target, &mining, &batch->count);
    if (tape_error(tape, err) != 0) return -1;
    double counted = (double)batch->count;
    if (is_over_all(strategy)) { // a blocking all-reduce
        Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
        int failed = strategy_sum(strategy, &counted, 1, err);
        profile_leave(tape->profile, phase);
        if (failed) return -1;
    }
    batch->divisor = counted * (double)parts;
    batch->loss = op_divide(tape, sum, batch->divisor);
    return 0;
}

// ---- choosing one -------------------------------------------------------------------------------

Loss loss_of_evaluation(const TrainConfig *config, const Dataset *set) {
    Loss loss = {.pos_weight = config->pos_weight, .threshold = -INFINITY};
    loss.form = set->dense                 ? LOSS_PIXEL_CROSS_ENTROPY
                : !dataset_has_labels(set) ? LOSS_SQUARED_ERROR
                : config->loss == LOSS_BCE ? LOSS_BINARY_CROSS_ENTROPY
                                           : LOSS_CROSS_ENTROPY;
    return loss;
}

Loss loss_of_training(const TrainConfig *config, const Dataset *set) {
    Loss loss = loss_of_evaluation(config, set);
    loss.least = config->ohem_min;
    if (config->ohem_threshold > 0) loss.threshold = config->ohem_threshold;
    // A class with a probability below p has a loss above -log p.
    if (config->ohem_probability > 0) loss.threshold = -log(config->ohem_probability);
    return loss;
}

// ---- one batch ----------------------------------------------------------------------------------

int batch_forward(BatchLoss *batch, Tape *tape, Module *module, const BatchInput *input,
                  Error *err) {
    *batch = (BatchLoss){.target = batch_input_target(input, tape)};
    Phase phase = profile_enter(tape->profile, PHASE_FORWARD);
    batch->outputs = module_forward(module, tape, batch_input_samples(input, tape));
    profile_leave(tape->profile, phase);
    return tape_error(tape, err);
}

int loss_forward(const Loss *loss, BatchLoss *batch, Tape *tape, const BatchInput *input,
                 Strategy *strategy, Error *err) {
    Phase phase = profile_enter(tape->profile, PHASE_LOSS);
    const Batch *whole = input->batch;
    const size_t labels = dataset_label_size(whole->set);
    const size_t samples = is_over_all(strategy) ? whole->global_count : whole->count;
    batch->count = (input->end - input->begin) * labels; // samples, or of text tokens
    batch->divisor = (double)(samples * labels);
    if (loss->form != LOSS_CROSS_ENTROPY) batch->outputs = op_float32(tape, batch->outputs);
    int failed = 0;
    switch (loss->form) {
    case LOSS_CROSS_ENTROPY:
        batch->counts_hits = true;
        if (!batch->hits) batch->hits = tape_memory(tape, sizeof *batch->hits);
        batch->loss = op_cross_entropy_and_hits(tape, batch->outputs, batch->target, batch->divisor,
                                                batch->hits);
        break;
    case LOSS_BINARY_CROSS_ENTROPY:
        batch->loss = binary_cross_entropy(loss, batch, tape);
        break;
    case LOSS_SQUARED_ERROR:
        batch->loss = op_squared_error(tape, batch->outputs, batch->target,
                                       batch->divisor * (double)input->set->target_size);
        break;
    case LOSS_PIXEL_CROSS_ENTROPY:
        failed = pixel_cross_entropy(loss, batch, tape, input, strategy, err);
        break;
    }
    profile_leave(tape->profile, phase);
    return failed ? -1 : tape_error(tape, err);
}
